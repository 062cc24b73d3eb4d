"""The small world in which the pages' commands run: data of every kind they speak of, tiny, under the same names."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from feeds import made_up
from games import draw_game, make_clips, make_events, write_video

from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.events import Clip, Prediction
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.export.export import export
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.inference.submission import write_submission
from ballcast.model.anticipator import Anticipator

TINY = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4, classes=10)
SIZES = HierarchyConfig(dim=32, encoder_heads=4, encoder_ffn=32, decoder_layers=1, decoder_heads=4, decoder_ffn=32)
# Appended to the pages' commands, so that what takes hours on real data takes a second on these.
SMALL_MODEL = [
    *("model.hierarchy.dim=32", "model.hierarchy.encoder_heads=4", "model.hierarchy.encoder_ffn=32"),
    *("model.hierarchy.decoder_layers=1", "model.hierarchy.decoder_heads=4", "model.hierarchy.decoder_ffn=32"),
    *("model.faantra.dim=32", "model.faantra.heads=4", "model.faantra.ffn=32"),
    *("train.epochs=1", "train.warmup_epochs=0", "train.batch=4"),
]
SMALL_BACKBONE = [
    *("backbone.encoder=test_efficientnet", "backbone.channels=16", "backbone.blocks=1", "backbone.projected=8"),
    *("backbone.se_ratio=4", "train.start=scratch", "train.epochs=1", "train.steps=2", "clips.batch=2", "clips.run=2"),
]


def match_video(folder: Path) -> None:
    """match.mp4, 8 s of 128×64, which passes for a football pitch."""
    drawn = draw_game(200, make_events(200, seed=9), seed=9) // 2 + 40
    write_video(folder / "match.mp4", drawn.repeat(2, axis=1).repeat(2, axis=2), grass=True)


def snbaa(folder: Path) -> None:
    """snbaa/224p, four splits of SN-BAA, a few clips each; the challenge has no labels."""
    for n, (split, count) in enumerate((("train", 2), ("valid", 5), ("test", 2), ("challenge", 2))):
        make_clips(folder / "snbaa" / "224p" / split, count, seed=n)
    unlabelled = folder / "snbaa" / "224p" / "challenge"
    clips = [Clip(clip.name, labelled=False) for clip in read_labels(unlabelled)]
    write_labels(unlabelled / "Labels-ball.json", clips)


def my_features(folder: Path) -> None:
    """my_features: clip_1.npy, clip_2.npy."""
    (folder / "my_features").mkdir()
    for n in (1, 2):
        np.save(folder / "my_features" / f"clip_{n}.npy", np.zeros((6, 33, 8), np.float32))


def models(folder: Path) -> None:
    """my-backbone and my-model, which belong together."""
    torch.manual_seed(0)
    backbone = Backbone(TINY, name="tiny").eval()
    backbone.save_pretrained(folder / "my-backbone")
    about = {"backbone": {"hash": backbone.hash, "name": "tiny"}, "pos_weight": 4.0}
    model = Anticipator(ModelConfig(clips=snippet_count(TINY), width=TINY.width, hierarchy=SIZES), metadata=about)
    model.save_pretrained(folder / "my-model")


def exported(folder: Path) -> None:
    """exported: my-model and my-backbone, exported."""
    export(str(folder / "my-model"), str(folder / "my-backbone"), folder / "exported", video=folder / "match.mp4")


def feeds(folder: Path) -> None:
    """match.json as Wyscout delivers it, and matches/ as StatsBomb does, with the sample match that kloppy ships.

    Under another name it is the match to validate on.
    """
    import kloppy

    (folder / "match.json").write_text(json.dumps({"events": made_up(90, seed=1)}))
    samples = Path(kloppy.__file__).parent / "tests" / "files"
    for split, name in (("train", "15986"), ("valid", "15987")):
        for what in ("event", "lineup"):
            target = folder / "matches" / split / f"{what}s" / f"{name}.json"
            target.parent.mkdir(parents=True)
            shutil.copyfile(samples / f"statsbomb_15986_{what}.json", target)


def spots(folder: Path) -> None:
    """spots.csv and results_spotting.json: what a spotter found in match.mp4."""
    found = [(0.5, "PASS", 0.9), (1.8, "DRIVE", 0.7), (4.2, "PASS", 0.8), (6.0, "SHOT", 0.4)]
    (folder / "spots.csv").write_text("\n".join(f"{seconds},{label},{sure}" for seconds, label, sure in found))
    records = [
        {
            "gameTime": f"1 - 00:0{seconds:.0f}",
            "label": label,
            "position": str(round(1000 * seconds)),
            "confidence": sure,
        }
        for seconds, label, sure in found
    ]
    (folder / "results_spotting.json").write_text(json.dumps({"UrlLocal": "match", "predictions": records}))


def seeds(folder: Path) -> None:
    """runs/s0 and runs/s1: the model trained on SN-BAA, as two seeds; runs/a and runs/b, with features of their own."""
    for name in ("s0", "s1", "a", "b"):
        shutil.copytree(folder / "runs" / "paper", folder / "runs" / name)
    for name in ("a", "b"):
        shutil.copytree(folder / "features", folder / f"features-{name}")


def two_systems(folder: Path) -> None:
    """old.zip and new.zip: predictions of two systems for snbaa/224p/test."""
    clips = read_labels(folder / "snbaa" / "224p" / "test")
    for name, confidence in (("old.zip", 0.4), ("new.zip", 0.6)):
        write_submission(folder / name, {clip.name: [Prediction("PASS", 31_000, confidence)] for clip in clips})


# What a reader of a page has when they begin; AFTER: what is there when that page has been followed to its end.
HAS: dict[str, list[Callable[[Path], None]]] = {
    "first.md": [match_video, models],
    "train.md": [snbaa, my_features],
    "events.md": [feeds],
    "README.md": [match_video, feeds, spots],
    "backbone.md": [match_video],
    "export.md": [match_video, models],
    "video.md": [match_video, spots],
    "python.md": [match_video, models, exported],
    "live.md": [match_video, models],
    "tune.md": [seeds],
    "score.md": [snbaa, two_systems],
}
AFTER = dict.fromkeys(
    ("README.md", "backbone.md", "tune.md", "video.md", "live.md", "report.md", "export.md", "robustness.md"),
    "train.md",
)

"""Every long command with inputs so small that it takes seconds: what `kills`, `disk_full` and `flips` disturb."""

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pyzipper
import torch

from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig, Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import load, to_yaml
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.features.backbone import Backbone
from ballcast.model.anticipator import Anticipator

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from feeds import KINDS
from games import draw_game, make_clips, make_events, make_matches, write_video
from synthetic import SMALL, make_split

TINY = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4)
HEADS = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32, "decoder_layers": 1}
CPU = ("--device", "cpu")
ZIP = "datasets/SoccerNet/ActionAnticipation/224p/train.zip"
PASSWORD = "pa55"
HUB = f"hub-{os.getpid()}.txt"  # with the address of the server, the same in forked processes
OTHERS, TESTED = 714, 60  # matches outside England that give the benchmark's numbers, and in England


def _nothing(out: Path) -> None:
    """Most commands make their folder themselves."""


@dataclass(frozen=True)
class Job:
    """A command.

    Args:
        name: of the verb.
        arguments: its arguments, with what it writes below `out`.
        setup: puts into `out` what must be there before.
        prepare_process: called in the process of the command.
        done: what it says if its work is there already, whole; "": it runs and leaves that as it is.
    """

    name: str
    arguments: Callable[[Path], list[str]]
    setup: Callable[[Path], None] = _nothing
    prepare_process: Callable[[], None] = lambda: None
    done: str = ""


def prepare(folder: Path, verbs: Iterable[str]) -> None:
    """Write the inputs of some commands, if they are not there already."""
    for part in dict.fromkeys(part for verb in verbs for part in INPUTS[verb]):
        if not (done := folder / f"{part.__name__}.done").exists():
            part(folder)
            done.touch()


def _write_videos(folder: Path) -> None:
    for n in range(3):
        write_video(folder / "videos" / f"match_{n}.mp4", draw_game(500, make_events(500, seed=n), seed=n))
    write_video(folder / "match.mp4", draw_game(350, make_events(350, seed=9), seed=9), grass=True)


def _write_networks(folder: Path) -> None:
    """A backbone, a model of its features, one of the made up features, one of event feeds; recipes."""
    torch.manual_seed(0)
    backbone = Backbone(TINY, name="tiny").eval()
    backbone.save_pretrained(folder / "backbone")
    about = {"backbone": {"hash": backbone.hash, "name": "tiny"}, "pos_weight": 3.0, "picture_size": [32, 64]}
    sizes = ModelConfig(width=TINY.width, hierarchy=HierarchyConfig(**HEADS))  # type: ignore[arg-type]
    Anticipator(sizes, metadata=about).save_pretrained(folder / "model")
    Anticipator(load(Recipe, None, SMALL).model).save_pretrained(folder / "untuned")
    grid = load(Recipe, None, [*SMALL, "model.clips=33", "model.width=18"])
    Anticipator(grid.model).save_pretrained(folder / "of events")
    (folder / "recipe.yaml").write_text(to_yaml(Recipe()))
    (folder / "pretrain.yaml").write_text(to_yaml(PretrainRecipe()))


def _write_games(folder: Path) -> None:
    make_matches(folder / "games", ("train", "valid", "test"), frames=300)
    make_matches(folder / "long", ("train", "valid", "test"), frames=1000)


def _write_features(folder: Path) -> None:
    for split, clips in (("train", 24), ("valid", 8), ("tuned", 30)):
        make_split(folder / "features" / split, clips, seed=clips)


def _write_table(folder: Path) -> None:
    """A parquet table with as many matches as `events --split small` needs, of 70 s each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, rows = np.random.default_rng(0), []
    for match in range(OTHERS + TESTED):
        for at in range(500, 70_000, 3000):
            event, sub_event = KINDS[rng.integers(len(KINDS))]
            named = {"competition": "England" if match >= OTHERS else "Spain", "match": match, "period": "1H"}
            places = dict(zip(("x0", "y0", "x1", "y1"), rng.integers(0, 101, 4).tolist(), strict=True))
            team = 10 + at // 3000 % 2
            kind = {"t_ms": at, "team": team, "player": 1, "event": event, "sub_event": sub_event, "tags": [1801]}
            rows.append({**named, **kind, **places})
    table = pa.Table.from_pylist(rows)
    whole = {name: pa.int32() for name in ("match", "t_ms", "team", "player", "x0", "y0", "x1", "y1")}
    kinds = [(field.name, whole.get(field.name, field.type)) for field in table.schema]
    pq.write_table(table.cast(pa.schema(kinds)), folder / "table.parquet")


def _write_snbaa(folder: Path) -> None:
    """SN-BAA with four clips to validate on, two in the other splits, the challenge without labels."""
    valid = make_clips(folder / "snbaa" / "224p" / "valid", 4, seed=0)
    for split in ("train", "test", "challenge"):
        shutil.copytree(valid, valid.with_name(split), ignore=shutil.ignore_patterns("clip_3", "clip_4"))
        write_labels(valid.with_name(split) / "Labels-ball.json", read_labels(valid)[:2])
    valid.with_name("challenge").joinpath("Labels-ball.json").unlink()


def _write_zip(folder: Path) -> None:
    """A split as SN-BAA is published, with videos of noise, which are as good as any to a download."""
    out = BytesIO()
    with pyzipper.AESZipFile(out, "w", compression=pyzipper.ZIP_STORED, encryption=pyzipper.WZ_AES) as archive:
        archive.setpassword(PASSWORD.encode())
        archive.writestr("train/Labels-ball.json", b'{"version": "1.0", "date": "2025.06.06", "videos": []}')
        for n in range(1, 31):
            archive.writestr(f"train/clip_{n}/224p.mp4", random.Random(n).randbytes(40_000))
    (folder / "train.zip").write_bytes(out.getvalue())


INPUTS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "pretrain": (_write_videos, _write_networks, _write_games),
    "train": (_write_networks, _write_features),
    "train e2e": (_write_games,),
    "reproduce": (_write_networks, _write_snbaa),
    "extract": (_write_networks, _write_videos),
    "tune": (_write_networks, _write_features),
    "events": (_write_networks, _write_table),
    "export": (_write_networks, _write_videos),
    "predict": (_write_networks, _write_videos),
    "download": (_write_zip,),
}


def serve_hub(folder: Path) -> None:
    """Serve the zip as the hub does, until this process ends; its address is written to the file `HUB`."""
    from hub_server import Hub

    with Hub() as hub:
        hub.files[ZIP] = (folder / "train.zip").read_bytes()
        hub.pause_s = 0.01
        (folder / f"{HUB}.tmp").write_text(hub.url)
        os.replace(folder / f"{HUB}.tmp", folder / HUB)
        hub.over.wait()


def _use_hub(address: Path) -> None:
    """Let huggingface_hub, which reads its environment when it is imported, ask the server at hand."""
    from huggingface_hub import constants

    url = address.read_text()
    places: Any = constants
    places.HUGGINGFACE_CO_URL_TEMPLATE = url + constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    places.ENDPOINT = url
    os.environ |= {"SOCCERNET_PASSWORD": PASSWORD, "HF_TOKEN": "hf_test", "NO_PROXY": "*", "no_proxy": "*"}


def jobs(folder: Path) -> list[Job]:
    """All commands, with the inputs that `prepare` wrote."""
    return [*_trainings(folder), *_conversions(folder)]


def _trainings(folder: Path) -> list[Job]:
    network = [
        f"backbone.{key}={getattr(TINY, key)}" for key in ("encoder", "channels", "blocks", "projected", "se_ratio")
    ]
    games = [f"data.sources=[{folder / 'games'}]", "data.train=[train]", "data.valid=[valid]", "data.test=[test]"]
    pretrain = [*network, *games, "train.start=scratch", "train.epochs=3", "train.steps=4", "train.save_every=2"]
    pretrain += ["clips.batch=4", "clips.run=2", "train.ema=0.9", "data.workers=1"]
    train = [*SMALL, f"data.features={folder / 'features'}", "data.train=[train]", "data.valid=[valid]"]
    train += ["train.ema=0.9", "train.epochs=3", "train.batch=4", "train.save_every=2", "train.compile=false"]
    e2e = [f"games.sources=[{folder / 'long'}]", "encoder.network.encoder=test_efficientnet", "encoder.start=scratch"]
    e2e += ["encoder.network.projected=16", "model.width=16", "model.dense.dim=16", "model.dense.heads=2"]
    e2e += ["model.dense.ffn=16", "model.dense.gru_layers=1", "data.every_ms=8000", "games.workers=1"]
    e2e += ["train.batch=2", "train.epochs=2", "train.restart_epochs=1", "train.save_every=1", "train.compile=false"]
    heads = [f"model.hierarchy.{key}={value}" for key, value in HEADS.items()]
    table = [str(folder / "snbaa"), *heads, "train.batch=8", "train.epochs=1", "--backbone", str(folder / "backbone")]
    table += ["--quick", "--seeds", "1", "--recipes", "paper", "--workers", "1", *CPU]

    def command(verb: str, recipe: str, changes: list[str]) -> Callable[[Path], list[str]]:
        return lambda out: [verb, recipe, *changes, "--out", str(out), *CPU]

    return [
        Job("pretrain", command("pretrain", str(folder / "pretrain.yaml"), pretrain)),
        Job("train", command("train", str(folder / "recipe.yaml"), train)),
        Job("train e2e", command("train", "e2e", e2e)),
        Job("reproduce", lambda out: ["reproduce", *table, "--out", str(out)]),
    ]


def _conversions(folder: Path) -> list[Job]:
    model = ["--model", str(folder / "model"), "--backbone", str(folder / "backbone")]
    video, cut = str(folder / "match.mp4"), ["--any-video", *CPU]
    extract = ["--backbone", str(folder / "backbone"), "--workers", "1", "--every", "50", *CPU]
    tuned = ["--features", str(folder / "features" / "tuned"), *CPU]

    def predict(out: Path) -> list[str]:
        files = {"out": "out.json", "csv": "out.csv", "osl": "out.osl.json", "overlay": "out.mp4", "html": "out.html"}
        named = [word for option, name in files.items() for word in (f"--{option}", str(out / name))]
        return ["predict", video, *model, *cut, *named]

    def events(out: Path) -> list[str]:
        return ["events", str(folder / "table.parquet"), str(out), "--split", "small"]

    def export(out: Path) -> list[str]:
        return ["export", model[1], *model[2:], "--video", video, "--out", str(out)]

    def download(out: Path) -> list[str]:
        return ["download", "train", "--to", str(out), "--retries", "0"]

    return [
        Job("extract", lambda out: ["extract", str(folder / "videos"), str(out), *extract]),
        Job("tune", lambda out: ["tune", str(out), *tuned], lambda out: _copy(folder / "untuned", out)),
        Job("events", events, done="is there already"),
        Job("export", export),
        Job("predict", predict),
        Job("download", download, prepare_process=lambda: _use_hub(folder / HUB)),
    ]


def _copy(source: Path, out: Path) -> None:
    shutil.copytree(source, out)

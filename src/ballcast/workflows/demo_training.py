"""`ballcast demo --train`: train a small model for a minute on embedded features, as in `ballcast train`."""

from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.embedded import SAMPLES
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.features.store import LABELS, FeatureStore
from ballcast.features.store_import import cut_clips
from ballcast.training.progress import Display
from ballcast.training.run import train
from ballcast.workflows.run_report import report_run

# A small model, to be trained in a minute on two cores; everything else is as in the paper's recipe.
RECIPE = (
    "data.drop_windows=0.1",  # the excerpt is also predicted from its start, with less than 30 s of video
    "data.stitch=false",
    "data.boost={}",
    "model.hierarchy.dim=64",
    "model.hierarchy.encoder_heads=4",
    "model.hierarchy.encoder_ffn=128",
    "model.hierarchy.decoder_layers=2",
    "model.hierarchy.decoder_heads=4",
    "model.hierarchy.decoder_ffn=128",
    "train.epochs=20",
    "train.warmup_epochs=1",
    "train.restart_epochs=19",
    "train.lr=3e-4",
)


def train_small(out: Path, console: Console, *, device: torch.device, samples: Path = SAMPLES) -> None:
    """Train a small model for a minute on the embedded features of other matches, validated on a further match.

    Args:
        out: folder for the features and the run.
        console: to print on.
        device: to compute on.
        samples: the embedded data.
    """
    for split in ("valid", "train"):
        games = FeatureStore.open(samples / "features" / split)
        clips = read_labels(samples / split)
        each = len(clips) // len(games.names)
        names = {game: [clip.name for clip in clips[i * each : (i + 1) * each]] for i, game in enumerate(games.names)}
        cut = cut_clips(games, out / "features" / split, names)
        write_labels(out / "features" / split / LABELS, clips)
    recipe = load(Recipe, None, [*RECIPE, f"model.clips={cut.snippets}", f"model.width={cut.width}"])
    recipe = replace(recipe, data=replace(recipe.data, features=str(out / "features")))
    console.print(
        f"[bold]3  Train[/] a small model for about a minute on features of {len(names)} other matches, scored on one "
        "more match after each epoch"
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a small model gains nothing from more, and on a busy machine they wait for each other
    try:
        with Display(console, recipe.train.epochs) as display:
            progress = train(recipe, out / "run", device=device, show=display.show)
    finally:
        torch.set_num_threads(threads)
    console.print(f"   best validation mAP {100 * progress.best:.1f}, in epoch {progress.best_epoch}")
    report = report_run(recipe, out / "run", device=device)
    console.print(f"   report: {report}", markup=False, soft_wrap=True)

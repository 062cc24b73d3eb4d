"""Train anticipators on the frozen features that `tools.train_films` wrote, on the same machine.

    python -m tools.train_heads RUN/features OUT --row paper [key=value …]

ROWS names the models: a recipe each, and what differs. OUT/<row>/ gets the run with its best model, weights.pt (its
weights in half precision) and outputs.npz: the slots of every clip of the validation and test films, one clip every
5 s, in the order of their seeds.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast.core.actions import CLIP_FRAMES, FPS, HORIZON_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.config import load
from ballcast.core.embedded import find_recipe
from ballcast.core.events import Event
from ballcast.data.labels.games import MATCHES
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet, cut_clip, window_arrays
from ballcast.features.stack_index import snippet_count, snippet_middle
from ballcast.model.anticipator import Anticipator
from ballcast.training.data import TrainingData
from ballcast.training.evaluation import evaluate, predict_slots
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train
from tools.train_films import EVERY, film_recipe

SECOND = 1000
EVERY_MS = {"train": SECOND, "valid": 5 * SECOND, "test": 5 * SECOND}  # from one sample to the next
DENSE = [
    "train.backbone=frozen", "train.compile=false", "data.mixup=0.2", "train.epochs=12", "train.warmup_epochs=1",
    "train.restart_epochs=11", "train.batch=32", "train.lr=2.0e-4", "train.weight_decay=0.05",
]  # fmt: skip
ROWS: dict[str, tuple[str, list[str]]] = {
    "paper": ("paper", []),
    "static": ("paper", ["model.hierarchy.queries=static"]),
    "faantra": ("faantra", ["model.faantra.clip_ms=80"]),
    "dense30": ("e2e", [*DENSE, "model.windows=6"]),
    "dense5": ("e2e", [*DENSE, "model.windows=1"]),
}


def read_windows(folder: Path, split: str, windows: int, most: int | None = None) -> WindowSet:
    """Samples of the films of a split, of 5 s windows that start at whole seconds.

    Args:
        folder: with the features of films, and matches.json.
        split: train, valid or test.
        windows: W, windows of a sample.
        most: films at most; None: all.
    """
    network = film_recipe().encoder.network
    tokens = snippet_count(network)  # N
    centres = (snippet_middle(network) + network.stride * np.arange(tokens)) * 1000 / FPS
    entries = [entry for entry in json.loads((folder / MATCHES).read_text()) if entry["split"] == split]
    entries.sort(key=lambda entry: str(entry["video"]))
    blocks, index, clips = [], [], []
    rows = 0
    for entry in entries[:most]:
        features = np.load(folder / entry["video"])  # (stacks, D) float16
        events = [Event(a["label"], int(a["position"]), "", True) for a in entry["actions"]]
        starts = range(0, int(entry["frames"]) - WINDOW_FRAMES + 1, FPS)
        # Frame 2 k + 1 of a film is the same picture as frame 2 k.
        block = np.stack([features[start // EVERY : start // EVERY + tokens] for start in starts])  # (R, N, D)
        blocks.append(block)
        name = Path(entry["video"]).stem
        step = EVERY_MS[split] * FPS // 1000
        for frame in range(0, int(entry["frames"]) - CLIP_FRAMES - HORIZON_MS * FPS // 1000 + 1, step):
            # Of fewer windows than the paper's six, those just before the moment.
            first = frame + CLIP_FRAMES - windows * WINDOW_FRAMES
            index.append([rows + (first + w * WINDOW_FRAMES) // FPS for w in range(windows)])
            start_ms = frame * 1000 // FPS
            clips.append(cut_clip(events, start_ms, f"{name}+{start_ms}"))
        rows += len(block)
    coming = [clip.anticipation for clip in clips]
    seen = [clip.observation for clip in clips]
    return window_arrays(blocks, centres, index, coming, seen, [clip.name for clip in clips], clips)


def recipe_of(row: str, features: int, overrides: list[str]) -> Recipe:
    name, changes = ROWS[row]
    tokens = snippet_count(film_recipe().encoder.network)
    sizes = [f"model.clips={tokens}", f"model.width={features}"]
    return load(Recipe, find_recipe(Path(name)), [*changes, *sizes, *overrides])


class OutOfTimeError(Exception):
    """The time is over; the best model so far is kept."""


def show_epochs(end: float) -> Callable[[ProgressUpdate], None]:
    """A function that prints each epoch, and raises `OutOfTimeError` after the time `end`."""

    def show(update: ProgressUpdate) -> None:
        if update.ended:
            score = f", valid {100 * update.score.avg:.2f}" if update.score else ""
            print(f"epoch {update.epoch + 1}, step {update.step}: {update.samples_per_s:.0f}/s{score}", flush=True)
            if time.monotonic() > end:
                raise OutOfTimeError

    return show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--row", choices=ROWS, required=True)
    parser.add_argument("--films", type=int, help="training films at most")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further epoch begins")
    args = parser.parse_args()
    began = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width = int(np.load(next(args.features.glob("match_*.npy")), mmap_mode="r").shape[1])
    recipe = recipe_of(args.row, width, args.overrides)
    recipe = replace(recipe, data=replace(recipe.data, train=("films-train",), valid=("films-valid",)))
    sets = {
        split: read_windows(args.features, split, recipe.model.windows, args.films if split == "train" else None)
        for split in EVERY_MS
    }
    print(f"{args.row}: {', '.join(f'{len(s)} samples of {name}' for name, s in sets.items())}", flush=True)
    run = args.out / args.row
    data = TrainingData(sets["train"], sets["valid"], BackboneIdentity("0" * 64, "ballcast-frames"))
    try:
        train(recipe, run, device=device, data=data, show=show_epochs(began + args.seconds), log=print)
    except OutOfTimeError:
        print(f"{args.row}: stopped after {args.seconds:.0f} s", flush=True)
    model = Anticipator.from_pretrained(run / "best").to(device)
    torch.save({k: v.half() for k, v in model.state_dict().items()}, run / "weights.pt")
    arrays: dict[str, Any] = {}
    for split in ("valid", "test"):
        samples = Samples(sets[split], device, "auto")
        print(f"{args.row}, {split}: mAP {100 * evaluate(model, samples, recipe.emission).avg:.2f}", flush=True)
        slots = predict_slots(model, samples)
        for key in ("objectness", "classes", "offsets"):
            arrays[f"{split}_{key}"] = getattr(slots, key).half().cpu().numpy()
    about = {"row": args.row, "epoch": model.metadata.get("epoch"), "films": args.films}
    np.savez_compressed(run / "outputs.npz", about=json.dumps(about), form=slots.form, **arrays)


if __name__ == "__main__":
    main()

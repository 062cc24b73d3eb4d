"""Anticipation from pixels, end to end: a trained anticipator and its backbone's last part, on simulated matches.

    python -m benchmarks.finetune runs/backbone/best --anticipator work/paper-…-seed0/best --work work [key=value …]

Continues what `benchmarks.pixels --work work` trained, on the same windows, and scores both the same way: once with the
frozen backbone as it was, once with the fine-tuned one, whose features are extracted anew from the videos.
"""

import argparse
import time
from pathlib import Path

import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.data.labels.games import find_games
from ballcast.data.samples.batches import Samples
from ballcast.features.backbone import Backbone
from ballcast.model.anticipator import Anticipator
from ballcast.training.engine import predict_slots
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train
from ballcast.training.splits import TrainingData
from benchmarks.pixels import MATCHES, features_of, windows_of
from benchmarks.rows import emitted, table_row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backbone", type=Path, help="folder of a backbone that never saw the test matches")
    parser.add_argument("overrides", nargs="*", help="key=value, for example finetune.stages=2")
    parser.add_argument("--anticipator", type=Path, help="a model trained on its features, to start from")
    parser.add_argument("--config", type=Path, default=Path("configs/paper.yaml"))
    parser.add_argument("--data", type=Path, default=MATCHES, help="folder of the simulated matches")
    parser.add_argument("--work", type=Path, required=True, help="folder for features and the run")
    args = parser.parse_intermixed_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    store = features_of(Backbone.from_pretrained(args.backbone), args.data, args.work, device.type)
    fixed = [
        *(f"model.clips={store.clips}", f"model.width={store.width}", "train.backbone=finetune"),
        *(f"finetune.backbone={args.backbone}", f"finetune.videos={args.data}"),
        *([f"finetune.anticipator={args.anticipator}"] if args.anticipator else []),
    ]
    recipe = load(Recipe, args.config, [*fixed, *args.overrides])
    games = find_games(args.data)
    windows = windows_of(store, games, recipe.model.windows)
    learned, held_out = ([(store, [g for g in games if g.split == split])] for split in ("train", "valid"))
    training_data = TrainingData(windows["train"], windows["valid"], store.manifest.header.backbone, learned, held_out)
    rows = {}
    if args.anticipator:
        rows["frozen"] = (Anticipator.from_pretrained(args.anticipator), windows)
    began, run = time.perf_counter(), args.work / "finetune"

    def show(update: ProgressUpdate) -> None:
        took = time.perf_counter() - began
        if update.ended and update.score is not None:
            loss, valid = update.losses["total"], 100 * update.score.avg
            print(f"  epoch {update.epoch + 1}: loss {loss:.4f}, valid {valid:.2f}, {took:.0f} s", flush=True)
        elif not update.ended:
            print(f"  step {update.step}/{update.steps}: {update.samples_per_s:.1f} samples/s", flush=True)

    train(recipe, run, device=device, show=show, training_data=training_data)
    tuned = features_of(Backbone.from_pretrained(run / "best_backbone"), args.data, args.work, device.type)
    rows["fine-tuned"] = (
        Anticipator.from_pretrained(run / "best"),
        windows_of(tuned, games, recipe.model.windows),
    )
    for split in ("valid", "test"):
        for name, (model, own) in rows.items():
            slots = predict_slots(model.to(device), Samples(own[split], device, recipe.data.device))
            print(table_row(name, [{split: emitted(slots, own[split], recipe.emission)}], split))


if __name__ == "__main__":
    main()

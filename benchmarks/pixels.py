"""Anticipation from pixels: simulated matches through a backbone, and every anticipator on the same features.

    python -m benchmarks.pixels runs/backbone/best --data ../shared/data/simbaa --seeds 3 [key=value …]

Extracts the features of whole matches once, trains each model on a window a second of the training matches, takes the
epoch that is best on the validation match's clips, and scores it on the test matches' clips, one every 5 s as SN-BAA
cuts its games. Markov is told the true past; the models have to see it. Data: Google Research Football (Apache 2.0).
"""

import argparse
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from ballcast.core.actions import ACTIONS
from ballcast.core.config import load
from ballcast.core.files import write_json
from ballcast.core.recipe import Recipe
from ballcast.data.games import Game, find_games
from ballcast.data.windows import WindowSet, game_windows
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.training.ablate import training_name
from benchmarks.rows import HEADER, Result, scored, table_row, trained

MATCHES = Path(__file__).parents[2] / "shared/data/simbaa"
EVERY_MS = {"train": 1000, "valid": 5000, "test": 5000}
EVERY_FRAMES = 25  # windows a second apart serve both


def features_of(backbone: Backbone, data: Path, work: Path, device: str) -> FeatureStore:
    """The store of the whole matches, found again in `work` if it is there."""
    report = extract(data, work / backbone.hash[:12], backbone, every=EVERY_FRAMES, device=device)
    if report.frames:
        print(f"features of {report.frames} frames in {report.seconds:.0f} s", flush=True)
    return report.store


def windows_of(store: FeatureStore, games: list[Game], windows: int) -> dict[str, WindowSet]:
    return {
        split: game_windows(store, {g.name: g.events for g in games if g.split == split}, windows, every_ms=every)
        for split, every in EVERY_MS.items()
    }


def baseline(kind: type[ClassPrior] | type[Markov], windows: dict[str, WindowSet], every_ms: int) -> Result:
    """What needs no video, learned from the training windows that begin so far apart."""
    known = kind([clip for clip in windows["train"].clips if int(clip.name.rpartition("+")[2]) % every_ms == 0])
    return {
        name: scored(windows[name], [known.predict(clip) for clip in windows[name].clips]) for name in ("valid", "test")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backbone", type=Path, help="folder of a backbone that never saw the test matches")
    parser.add_argument("overrides", nargs="*", help="key=value, for example train.epochs=20")
    parser.add_argument("--config", action="append", help="a recipe, once for each model; default: paper and faantra")
    parser.add_argument("--data", type=Path, default=MATCHES, help="folder of the simulated matches")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keep features and runs in this folder")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    args = parser.parse_intermixed_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    told: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() if args.work is None else nullcontext(args.work) as folder:
        store = features_of(Backbone.from_pretrained(args.backbone), args.data, Path(folder), device.type)
        shape = [f"model.clips={store.clips}", f"model.width={store.width}"]
        chosen = args.config or ("paper", "faantra")
        recipes = {Path(c).stem: load(Recipe, Path(c), [*shape, *args.overrides]) for c in chosen}
        windows = windows_of(store, find_games(args.data), next(iter(recipes.values())).model.windows)
        for every_ms in (EVERY_MS["train"], EVERY_MS["test"]):  # it moves them by points, so both are told
            told[f"class prior, every {every_ms // 1000} s"] = [baseline(ClassPrior, windows, every_ms)]
            told[f"Markov on the true past, every {every_ms // 1000} s"] = [baseline(Markov, windows, every_ms)]
        for name, base in recipes.items():
            for seed in range(args.seeds):
                recipe = replace(base, train=replace(base.train, seed=base.train.seed + seed))
                run = Path(folder) / f"{name}-{training_name(recipe)}"
                result = trained(recipe, windows, store.manifest.header.backbone, run, device)
                told.setdefault(name, []).append(result | {"run": run.name})
                scores = {split: round(100 * result[split]["avg"], 2) for split in ("valid", "test")}
                print(f"{name}, seed {recipe.train.seed}: {scores}, {result['seconds']:.0f} s, {run}", flush=True)
    if args.json:
        write_json(args.json, told, indent=1)
    counts = windows["test"].class_counts()
    print("\ntest, actions to come: " + ", ".join(f"{a} {n}" for a, n in zip(ACTIONS, counts, strict=True)))
    print(f"| | | {HEADER}")
    for split in ("valid", "test"):
        for name, results in told.items():
            print(table_row(name, results, split))


if __name__ == "__main__":
    main()

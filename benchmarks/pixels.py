"""Anticipation from pixels: simulated matches through a backbone, and every anticipator on the same features.

    python -m benchmarks.pixels runs/backbone/best --data ../shared/data/simbaa --seeds 3 [key=value …]
    python -m benchmarks.pixels runs/backbone/best --variants FILE --work DIR --json FILE      # see `rows.read_recipes`

Extracts the features of whole matches once, trains each model on a window a second of the training matches, takes the
epoch that is best on the validation match's clips, and scores it on the test matches' clips, one every 5 s as SN-BAA
cuts its games. Markov is given the true past; the models have to see it. With --json, rows are written after every run,
and runs found there are not repeated. Data: Google Research Football (Apache 2.0).
"""

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import to_dict
from ballcast.data.labels.games import Game, find_games
from ballcast.data.samples.windows import WindowSet
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.training.ablation import training_name
from benchmarks.game_windows import game_windows
from benchmarks.rows import Result, Results, read_recipes, scored, seeds_of, trained

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
    parser.add_argument("--variants", type=Path, help="YAML of several rows, as `rows.read_recipes` reads them")
    parser.add_argument("--slots", type=Path, help="write the slots of valid and test below this folder")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    args = parser.parse_intermixed_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results, names = Results(args.json), []
    with tempfile.TemporaryDirectory() if args.work is None else nullcontext(args.work) as folder:
        store = features_of(Backbone.from_pretrained(args.backbone), args.data, Path(folder), device.type)
        overrides = [f"model.clips={store.snippets}", f"model.width={store.width}", *args.overrides]
        recipes: dict[str, tuple[Recipe, EmitConfig]] = {}
        for config in args.config or (["paper"] if args.variants else ["paper", "faantra"]):
            recipes |= read_recipes(config, overrides, args.variants, Path(config).stem)
        windows = windows_of(store, find_games(args.data), next(iter(recipes.values()))[0].model.windows)
        about = {"data": args.data.name, "backbone": store.manifest.header.backbone.hash}
        for every_ms in (EVERY_MS["train"], EVERY_MS["test"]):  # it moves them by points, so both are reported
            for kind, title in ((ClassPrior, "class prior"), (Markov, "Markov on the true past")):
                names.append(f"{title}, every {every_ms // 1000} s")
                results.put(names[-1], about, [baseline(kind, windows, every_ms)])
        for name, (base, chosen_by) in recipes.items():
            names.append(name)
            of_recipe = {**about, "recipe": to_dict(base)}
            done = results.done(name, of_recipe)[: args.seeds]
            print(f"{name}: {len(done)} of {args.seeds} runs are there", flush=True)
            for recipe in seeds_of(base, args.seeds)[len(done) :]:
                run = Path(folder) / training_name(recipe, chosen_by)
                made_by = store.manifest.header.backbone
                done.append(trained(recipe, windows, made_by, run, device, chosen_by=chosen_by, slots_to=args.slots))
                results.put(name, of_recipe, done)
    counts = windows["test"].class_counts()
    print("\ntest, actions to come: " + ", ".join(f"{a} {n}" for a, n in zip(ACTIONS, counts, strict=True)))
    results.show(names)


if __name__ == "__main__":
    main()

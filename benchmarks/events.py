"""Anticipation on real football: five leagues as event feeds, windows as the data's README says, the official score.

    python -m benchmarks.events --size small --config configs/events.yaml [key=value …] [--seeds 3]
    python -m benchmarks.events --size small --config prior|markov
    python -m benchmarks.events --size small --variants FILE --seeds 3      # YAML: name → list of overrides

Builds the windows, trains once a seed, takes the epoch that is best on the validation matches, and scores it there and
on England. Data: Wyscout (Pappalardo, Massucco et al., figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from ballcast.core.clips import Prediction
from ballcast.core.config import load, to_dict
from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.core.recipe import Recipe
from ballcast.data.event_grid import WIDTHS, Detail
from ballcast.data.event_windows import IDENTITIES, EventWindows, build
from ballcast.data.leagues import EVERY_MS, Size, divide
from ballcast.data.wyscout import read_table
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.training.ablate import read_variants, training_name
from benchmarks.rows import HEADER, Result, scored, table_row, trained
from benchmarks.tuned import tuned_rows

TABLE = Path(__file__).parents[2] / "shared/data/events/wyscout_leagues.parquet"
Splits = dict[str, EventWindows]


def build_splits(table: Path, size: Size, matches: int | None = None, detail: Detail = "plain") -> Splits:
    """The windows of train, valid and test; of only so many matches each if asked."""
    began = time.perf_counter()
    feeds = divide(read_table(table), size)
    splits = {
        name: build(feeds[name][:matches], EVERY_MS[name], detail=detail, scored=name != "train")
        for name in ("train", "valid", "test")
    }
    told = ", ".join(
        f"{name} {len(feeds[name][:matches])} matches {len(w.windows)} windows" for name, w in splits.items()
    )
    print(f"{size}, {detail}: {told}; read and built in {time.perf_counter() - began:.1f} s", flush=True)
    return splits


def baseline(kind: str, splits: Splits) -> Result:
    began = time.perf_counter()
    known = splits["train"]
    events = known.windows.classes, known.windows.position_ms
    answer: Callable[[EventWindows], list[list[Prediction]]]
    if kind == "prior":
        prior = ClassPrior.of(*events)
        answer = lambda split: prior.predict_all(len(split.windows))  # noqa: E731
    else:
        markov = Markov.of(*events, known.last, known.since_ms)
        answer = lambda split: markov.predict_all(split.last, split.since_ms)  # noqa: E731
    rows = {name: scored(splits[name].windows, answer(splits[name])) for name in ("valid", "test")}
    return {**rows, "seconds": time.perf_counter() - began}


def detail_of(recipe: Recipe) -> Detail:
    """How much of the feeds a recipe's model sees, told by its width."""
    found = [detail for detail, width in WIDTHS.items() if width == recipe.model.width]
    if not found:
        raise InputError(f"model.width={recipe.model.width} is no event grid; they are {WIDTHS}")
    return found[0]


def _keep(path: Path | None, told: list[Result]) -> None:
    if path is not None:
        write_json(path, told, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value, for example train.epochs=6")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--config", default="configs/events.yaml", help="a recipe, or prior, or markov")
    parser.add_argument("--variants", type=Path, help="YAML of several rows: name → list of overrides")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--name", default="", help="what to call the row")
    parser.add_argument("--data", type=Path, default=TABLE, help="wyscout_leagues.parquet")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--run", type=Path, help="keep the runs below this folder")
    parser.add_argument("--slots", type=Path, help="write the slots of valid and test below this folder")
    parser.add_argument("--tune", action="store_true", help="rows for each model tuned, and for the seeds' ensemble")
    parser.add_argument("--matches", type=int, help="only so many matches a split, to see that it works")
    args = parser.parse_intermixed_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = args.name or " ".join([Path(args.config).stem, *args.overrides])
    recipes: dict[str, Recipe | None] = {name: None}
    if args.config not in ("prior", "markov"):
        variants = read_variants(args.variants) if args.variants else {name: []}
        recipes = {n: load(Recipe, Path(args.config), [*args.overrides, *extra]) for n, extra in variants.items()}
        chosen_by = load(Recipe, Path(args.config), args.overrides).emit  # for all variants alike
    told = []
    built: dict[Detail, Splits] = {}
    with tempfile.TemporaryDirectory() if args.run is None else nullcontext(args.run) as folder:
        for name, base in recipes.items():
            detail: Detail = detail_of(base) if base else "plain"
            if detail not in built:
                built[detail] = build_splits(args.data, args.size, args.matches, detail)
            splits = built[detail]
            runs = [baseline(args.config, splits)] if base is None else []
            folders = []
            for seed in range(args.seeds if base else 0):
                assert base is not None
                recipe = replace(base, train=replace(base.train, seed=base.train.seed + seed))
                # Variants that differ only in emission share a folder, and so a training.
                run = Path(folder) / training_name(recipe)
                folders.append(run)
                windows = {part: split.windows for part, split in splits.items()}
                made_by = IDENTITIES[detail]
                runs.append(trained(recipe, windows, made_by, run, device, chosen_by=chosen_by, slots_to=args.slots))
                scores = {split: round(100 * runs[-1][split]["avg"], 2) for split in ("valid", "test")}
                print(f"{name}, seed {recipe.train.seed}: {scores}, {runs[-1]['seconds']:.0f} s", flush=True)
            about = {"size": args.size, "recipe": to_dict(base) if base else None}
            told.append({"name": name, **about, "runs": runs})
            _keep(args.json, told)  # tuning takes minutes
            if args.tune and base is not None:
                added = tuned_rows(folders, {part: split.windows for part, split in splits.items()}, device)
                told += [{"name": f"{name}, {how}", **about, "runs": rows} for how, rows in added.items()]
                _keep(args.json, told)
    print(f"\n| {args.size} | | {HEADER}")
    for split in ("valid", "test"):
        for row in told:
            print(table_row(row["name"], row["runs"], split))


if __name__ == "__main__":
    main()

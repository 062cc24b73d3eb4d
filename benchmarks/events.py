"""Anticipation on real football: five leagues as event feeds, windows as in the data's README, the official score.

    python -m benchmarks.events --size small --config configs/events.yaml [key=value …] [--seeds 3]
    python -m benchmarks.events --size small --config prior|markov
    python -m benchmarks.events --size small --variants FILE --seeds 3      # rows as `rows.read_recipes` reads them

Builds the windows, trains once a seed, takes the epoch that is best on the validation matches, and scores it there and
on England. With --json, rows are written after every run, and runs found there are not repeated.

Data: Wyscout (Pappalardo, Massucco et al., figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import torch

from ballcast.core.actions import ACTIONS, OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import to_dict
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.data.events.event_grid import (
    EVERY_MS,
    IDENTITIES,
    WIDTHS,
    Detail,
    EventWindows,
    Size,
    build_windows,
    split_matches,
)
from ballcast.data.events.wyscout import read_table
from ballcast.inference.baselines import SINCE_MS, ClassPrior, Markov
from ballcast.training.ablation import training_name
from benchmarks.rows import Result, Results, read_recipes, scored, seeds_of, trained
from benchmarks.tuned import tuned_rows

TABLE = Path(__file__).parents[2] / "shared/data/events/wyscout_leagues.parquet"
Splits = dict[str, EventWindows]


def build_splits(table: Path, size: Size, matches: int | None = None, detail: Detail = "plain") -> Splits:
    """The windows of train, valid and test; of only so many matches each if asked."""
    began = time.perf_counter()
    feeds = split_matches(read_table(table), size)
    splits = {
        name: build_windows(feeds[name][:matches], EVERY_MS[name], detail=detail, scored=name != "train")
        for name in ("train", "valid", "test")
    }
    sizes = ", ".join(
        f"{name} {len(feeds[name][:matches])} matches {len(w.windows)} windows" for name, w in splits.items()
    )
    print(f"{size}, {detail}: {sizes}; read and built in {time.perf_counter() - began:.1f} s", flush=True)
    return splits


def baseline(kind: str, splits: Splits) -> Result:
    began = time.perf_counter()
    known = splits["train"]
    events = known.windows.classes, known.windows.position_ms
    predict: Callable[[EventWindows], list[list[Prediction]]]
    if kind == "prior":
        prior = ClassPrior.fit(*events)
        predict = lambda split: [prior.predict(split.windows.clips[0])] * len(split.windows)  # noqa: E731
    else:
        markov = Markov.fit(*events, known.last, known.since_ms)
        predict = lambda split: markov_predictions(markov, split.last, split.since_ms)  # noqa: E731
    rows = {name: scored(splits[name].windows, predict(splits[name])) for name in ("valid", "test")}
    return {**rows, "seconds": time.perf_counter() - began}


def markov_predictions(markov: Markov, last: np.ndarray, since_ms: np.ndarray) -> list[list[Prediction]]:
    """The predictions for n windows, by their last action (−1: none) and the time since; equal ones are one list."""
    made: dict[tuple[int, int], list[Prediction]] = {}
    states = list(zip(last.tolist(), np.searchsorted(SINCE_MS, since_ms, side="right").tolist(), strict=True))
    for state, since in zip(states, since_ms.tolist(), strict=True):
        if state not in made:
            action, _ = state
            seen = () if action < 0 else (Event(ACTIONS[action], OBSERVED_MS - since),)
            made[state] = markov.predict(Clip("", seen))
    return [made[state] for state in states]


def detail_of(recipe: Recipe) -> Detail:
    """How much of the feeds a recipe's model sees, known from its width."""
    found = [detail for detail, width in WIDTHS.items() if width == recipe.model.width]
    if not found:
        raise InputError(f"model.width={recipe.model.width} is no event grid; they are {WIDTHS}")
    return found[0]


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
    results, names = Results(args.json), []
    windows_of = cache(lambda detail: build_splits(args.data, args.size, args.matches, detail))
    if args.config in ("prior", "markov"):
        results.put(name, {"size": args.size, "recipe": None}, [baseline(args.config, windows_of("plain"))])
        names.append(name)
    else:
        recipes = read_recipes(args.config, args.overrides, args.variants, name)
        with tempfile.TemporaryDirectory() if args.run is None else nullcontext(args.run) as folder:
            for row, (base, chosen_by) in recipes.items():
                names += train_row(row, base, chosen_by, windows_of, results, Path(folder), device, args)
    print(f"\n{args.size}")
    results.show(names)


def train_row(
    name: str,
    base: Recipe,
    chosen_by: EmitConfig,
    windows_of: Callable[[Detail], Splits],
    results: Results,
    folder: Path,
    device: torch.device,
    args: argparse.Namespace,
) -> list[str]:
    """Train and score what `results` does not have of a row and, if asked, of its models tuned; the rows' names."""
    detail = detail_of(base)
    about = {"size": args.size, "matches": args.matches, "recipe": to_dict(base)}
    # Variants that differ only in emission share a folder, and so a training.
    runs = {folder / training_name(recipe, chosen_by): recipe for recipe in seeds_of(base, args.seeds)}
    done = [] if args.tune else results.done(name, about)[: args.seeds]  # tuning needs the models
    names = [name]
    print(f"{name}: {len(done)} of {args.seeds} runs are there", flush=True)
    for run, recipe in list(runs.items())[len(done) :]:
        windows = {part: split.windows for part, split in windows_of(detail).items()}
        made_by = IDENTITIES[detail]
        done.append(trained(recipe, windows, made_by, run, device, chosen_by=chosen_by, slots_to=args.slots))
        results.put(name, about, done)
    if args.tune:
        added = tuned_rows(list(runs), {part: split.windows for part, split in windows_of(detail).items()}, device)
        for how, rows in added.items():
            names.append(f"{name}, {how}")
            results.put(names[-1], about, rows)
    return names


if __name__ == "__main__":
    main()

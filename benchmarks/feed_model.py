"""The event transformer on real football: score models of `ballcast train feed` on validation and England.

    ballcast train feed data.source=wyscout_leagues.parquet --out RUN
    python -m benchmarks.feed_model score RUN                     # validation and England, with intervals
    python -m benchmarks.feed_model ensemble OUT RUN0 RUN1 …      # the mean of several

RUN is the folder of a training, of which run/best is scored. Written into RUN or OUT: `rows.json`, the outputs for each
split, and `valid-chance.npz` and `test-chance.npz` with what came, for `tools.make_feed_model`. Choices are made by
validation; England is only scored.

Data: Wyscout (Pappalardo, Massucco et al., figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast.core.event_schema import DETAILS
from ballcast.core.files import write_json
from ballcast.data.events.event_grid import EVERY_MS, Size, split_matches
from ballcast.data.events.wyscout import read_table
from ballcast.data.samples.feed_samples import FeedWindows, Match
from ballcast.inference.tuning import match_bins, score_bins
from ballcast.model.event_transformer import load_event_transformer
from ballcast.model.postprocess import PEAKS, select_times
from ballcast.model.score_mapping import REACH_MS
from ballcast.training.evaluation import FeedOutputs, predict_feed_windows
from benchmarks.events import TABLE
from benchmarks.rows import row_of


def read_scores(intensity: Any, power: float = 1.0) -> Any:
    """(n, 32, C) scores; `power` below 1 spreads low scores over more of the scorer's 200 thresholds."""
    scores = select_times(intensity, [REACH_MS] * len(intensity), PEAKS)
    return scores**power if power != 1 else scores


def open_splits(table: Path, size: Size, matches: int | None) -> dict[str, FeedWindows]:
    """The windows of validation and England; of a few matches each if asked."""
    feeds = split_matches(read_table(table), size)
    return {
        split: FeedWindows.from_matches([Match(feed) for feed in feeds[split][:matches]], EVERY_MS[split])
        for split in ("valid", "test")
    }


def outputs_of(run: Path, windows: FeedWindows, device: torch.device, missing: Sequence[str] = ()) -> FeedOutputs:
    """The outputs of a run's best model; `missing`: details to hide, by the names of `DETAILS`."""
    if missing:
        available = windows.available.copy()
        available[:, [DETAILS.index(name) for name in missing]] = False
        windows = replace(windows, available=available)
    return predict_feed_windows(load_event_transformer(run / "best").to(device), windows)


def kept_outputs(run: Path, split: str, windows: FeedWindows, device: torch.device, key: str) -> dict[str, Any]:
    """A model's outputs for a split in half precision, kept beside it."""
    path = run / f"{key}-{split}.npz"
    if not path.exists():
        found = outputs_of(run, windows, device)
        np.savez(path, intensity=found.intensity.astype(np.float16), chance=found.chance.astype(np.float16))
    with np.load(path) as file:
        return {"intensity": file["intensity"], "chance": file["chance"]}


def score(args: argparse.Namespace, device: torch.device) -> None:
    """Write the rows of a model, or of the mean of several: validation decides how scores are read, then England."""
    members = args.members or [args.out]
    rows: dict[str, Any] = {"members": [str(member) for member in members]}
    power = 1.0
    for split, windows in open_splits(args.data, args.size, args.matches).items():
        key = f"{args.size}-{args.matches or 'all'}"
        parts = [kept_outputs(run, split, windows, device, key) for run in members]
        mean = {name: sum(part[name].astype(np.float32) for part in parts) / len(parts) for name in parts[0]}
        if split == "valid":
            tried = {p: score_bins(windows.clips, read_scores(mean["intensity"], p)).avg for p in (1.0, 0.5)}
            power = max(tried, key=tried.__getitem__)
            rows["power"] = power
            rows["tried"] = tried
        for p in sorted({1.0, power}):
            scores = read_scores(mean["intensity"], p)
            row = row_of(match_bins(windows.clips, scores), windows.names, float(scores.any(-1).sum(1).mean()))
            rows[split if p == 1 else f"{split}, power {p:g}"] = row
        for names in filter(None, args.missing.split(";")):
            hidden = outputs_of(members[0], windows, device, names.split(","))
            result = score_bins(windows.clips, read_scores(hidden.intensity)).avg
            rows.setdefault("hidden", {}).setdefault(split, {})[names] = result
        shown = {key: round(100 * rows[key]["avg"], 2) for key in rows if key.startswith(split)}
        print(args.out.name, len(members), "models", len(windows), split, shown, flush=True)
        args.out.mkdir(parents=True, exist_ok=True)
        np.savez(args.out / f"{split}-chance.npz", chance=mean["chance"], came=windows.came_within())
        write_json(args.out / "rows.json", rows, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("score", "ensemble"))
    parser.add_argument("out", type=Path)
    parser.add_argument("members", nargs="*", type=Path, help="of an ensemble: the folders of its trainings")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--missing", default="", help="score also with these details hidden; sets separated by ;")
    parser.add_argument("--data", type=Path, default=TABLE, help="wyscout_leagues.parquet")
    parser.add_argument("--matches", type=int, help="only so many matches a split, to see that it works")
    args = parser.parse_args()
    if (args.what == "ensemble") != bool(args.members):
        parser.error("an ensemble has members, and a score has none")
    score(args, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


if __name__ == "__main__":
    main()

"""Measure how far the percentages along labelled matches are from how often the actions came.

    python -m benchmarks.calibration FILMS [--model FOLDER] [--split test] [--record calibration.json]

FILMS has matches.json and its videos, as `tools.simulate` writes them. For each action, two things: the confidence of
each prediction against whether the action came within 1 s of its time, and the probability within 5 s against whether
any came. Each is given as the mean of both, and as the expected calibration error (ECE, ten equal bins). Intervals:
95 %, resampling stretches of a minute.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ballcast.api import load
from ballcast.core.actions import ACTIONS, HORIZON_MS, SHORT_NAMES
from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.data.labels.games import MATCHES, read_matches
from ballcast.inference.expected_precision import TOLERANCE_MS, matched
from ballcast.metrics.diagnosis import reliability

BLOCK_MS = 60_000
RESAMPLES = 500
Block = list[tuple[float, bool]]  # probabilities, and whether it came


def summary(blocks: Sequence[Block], seed: int = 0) -> dict[str, Any]:
    """Count, mean probability, share that came and ECE over all blocks, and the interval of the ECE."""

    def error(chosen: Sequence[Block]) -> float:
        pairs = [pair for block in chosen for pair in block]
        found = reliability([p for p, _ in pairs], [came for _, came in pairs])
        assert found is not None
        return found.error

    pairs = [pair for block in blocks for pair in block]
    if not pairs:
        return {"count": 0}
    rng = np.random.default_rng(seed)
    drawn = [error([blocks[i] for i in rng.integers(0, len(blocks), len(blocks))]) for _ in range(RESAMPLES)]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    mean, share = np.mean(pairs, axis=0)
    values = {"mean": mean, "came": share, "ece": error(blocks), "ece_low": low, "ece_high": high}
    return {"count": len(pairs)} | {key: round(float(value), 4) for key, value in values.items()}


def measure(films: Path, model: str | None, split: str) -> dict[str, Any]:
    """The record of all matches of a split."""
    loaded = load(model)
    if loaded.precision is None:
        raise InputError(f"{loaded.name}: was not measured, so its confidences are no probabilities; `ballcast tune`")
    chosen = [match for match in read_matches(films / MATCHES) if match.split == split]
    if not chosen:
        raise InputError(f"{films / MATCHES}: has no matches of the split {split}")
    predictions: dict[str, list[Block]] = {label: [] for label in ACTIONS}
    within: dict[str, list[Block]] = {label: [] for label in ACTIONS}
    for match in chosen:
        block = -1
        for made in loaded.video(films / match.video, any_video=True):
            if made.at_ms // BLOCK_MS != block:
                block = made.at_ms // BLOCK_MS
                for blocks in (*predictions.values(), *within.values()):
                    blocks.append([])
            events = [e for e in match.events if made.at_ms < e.position_ms <= made.at_ms + HORIZON_MS]
            for p, event in zip(made.predictions, matched(made.predictions, events, TOLERANCE_MS), strict=True):
                predictions[p.label][-1].append((p.confidence, event is not None))
            for label, chance in zip(ACTIONS, made.within_5s, strict=True):
                within[label][-1].append((chance, any(e.label == label for e in events)))
    return {
        "model": Path(loaded.name).name,
        "matches": [match.video for match in chosen],
        "predictions": {name: summary(predictions[label]) for name, label in zip(SHORT_NAMES, ACTIONS, strict=True)},
        "within_5s": {name: summary(within[label]) for name, label in zip(SHORT_NAMES, ACTIONS, strict=True)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--split", default="test")
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    record = measure(args.films, args.model, args.split)
    for kind in ("predictions", "within_5s"):
        print(f"{kind:12} {'count':>6} {'said':>6} {'came':>6}   ECE, per cent")
        for name, found in record[kind].items():
            if found["count"]:
                said, came, *error = (100 * found[key] for key in ("mean", "came", "ece", "ece_low", "ece_high"))
                interval = "{:.1f} ({:.1f}–{:.1f})".format(*error)
                print(f"{name:12} {found['count']:6} {said:6.1f} {came:6.1f}   {interval}")
    if args.record:
        write_json(args.record, record, indent=1)


if __name__ == "__main__":
    main()

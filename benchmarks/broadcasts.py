"""Real broadcasts: from what was seen to what comes, on three matches of FOOTPASS.

    python -m benchmarks.broadcasts [--model FOLDER] [--record benchmarks/results/broadcasts.json]

Three pasts: the labels themselves, and what the video spotters DST and TAAD found in the matches. Rows: the class
prior; a Markov chain on the last spot with its own emission, and emitted as the model is (`select_hits`, scores spread
by rank); the embedded model of spots. Prior and chains are fitted to FOOTPASS's 48 training matches, one more chain to
the model's own training matches, Wyscout's. The model has not seen FOOTPASS.

Windows every 5 s, from each half's first event to 5 s before its last. mAP in per cent, over ten classes and over the
eight that occur, with 95 % intervals over the six halves, and the paired difference to the chain that is emitted alike.
In 1.1 % of the windows the newest spot of DST belongs to an event at or after T: it probably saw frames after T.

Data: FOOTPASS (Ochin et al., 2025) is measured with and no part of the package; Wyscout (Pappalardo, Massucco et al.,
figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0). Without the folder the benchmark says so and ends.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, FPS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS
from ballcast.core.embedded import SPOT_MODEL
from ballcast.core.event_schema import HORIZONS_S
from ballcast.core.events import GRID_BINS, GRID_STEP, Clip, Event, merge_bins
from ballcast.core.files import write_json
from ballcast.core.spots import Spots
from ballcast.data.labels.spots import read_spots
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.spot_model import SpotModel, open_spot_model
from ballcast.inference.tuning import match_bins
from ballcast.metrics.average_precision import Matches, match_all
from ballcast.metrics.bootstrap import Intervals, bootstrap_matches, difference, interval
from ballcast.model.postprocess import select_hits
from ballcast.model.score_mapping import ClassScoreMapping, even_knots

SHARED = Path(os.environ.get("BALLCAST_SHARED", Path(__file__).parents[2] / "shared"))
PASTS = {"true": "val", "DST": "DST_val", "TAAD": "TAAD_val"}
EVERY_MS = 5_000
LEAST = 0.5  # confidence of a spot that the chains take for the last; the model reads all
OCCUR = [i for i, label in enumerate(ACTIONS) if label not in ("HIGH PASS", "OUT")]
PEAKS = 5
SINCE_MS = np.array((500, 1000, 1500, 2000, 3000, 5000))  # edges of "time since the last spot", as of `Markov`
STATES = (len(ACTIONS) + 1) * (len(SINCE_MS) + 1)
SMOOTHING = 5.0
KNOT_WINDOWS = 20_000  # whose scores the chain's are spread by
RESAMPLES = 2000
Floats = NDArray[np.float32]


def windows(half: Spots) -> NDArray[np.int64]:
    """The times T of a half's windows in ms."""
    return np.arange(half.position_ms[0], half.position_ms[-1] - HORIZON_MS + 1, EVERY_MS)


def clip_of(half: Spots, at: int) -> Clip:
    """The label of a window: the events of the 5 s after T."""
    first, stop = np.searchsorted(half.position_ms, (at, at + HORIZON_MS))
    found = [
        Event(ACTIONS[action], int(position_ms) - at + OBSERVED_MS)
        for action, position_ms in zip(half.action[first:stop], half.position_ms[first:stop], strict=True)
    ]
    return Clip(f"{half.name}+{at}", anticipation=tuple(found))


def last_before(half: Spots, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The last sure spot before each T, −1: none, and ms since it."""
    sure = half.take(half.confidence >= LEAST)
    before = np.searchsorted(sure.position_ms, at)
    position_ms, action = np.append(-OBSERVED_MS, sure.position_ms), np.append(-1, sure.action)  # [0]: none
    since = np.minimum(at - position_ms[before], OBSERVED_MS)
    return np.where(since < OBSERVED_MS, action[before], -1), since


class Chain:
    """Expected actions in each bin given the last spot and the time since, emitted as the model's are."""

    def __init__(self, halves: Sequence[Spots]) -> None:
        total = np.zeros((STATES, len(ACTIONS), GRID_BINS))
        states = []
        for half in halves:
            at = windows(half)
            states.append(self._state(*last_before(half, at)))
            first, stop = np.searchsorted(half.position_ms, (at, at + HORIZON_MS))
            for state, t, i, k in zip(states[-1], at, first, stop, strict=True):
                bins = (half.position_ms[i:k] - t) * FPS // (1000 * GRID_STEP)
                np.add.at(total[state], (half.action[i:k], bins), 1)
        state = np.concatenate(states)  # (n,)
        count = np.bincount(state, minlength=STATES)[:, None, None]
        prior = total.sum(0) / len(state)
        self.intensity = ((total + SMOOTHING * prior) / (count + SMOOTHING)).astype(np.float32)
        chosen = state[:: max(1, len(state) // KNOT_WINDOWS)]
        found = self._select(self.intensity[chosen])
        self.spread = [ClassScoreMapping(knots=even_knots(found[..., c])) for c in range(len(ACTIONS))]

    @staticmethod
    def _state(last: NDArray[np.int64], since_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        bracket = np.searchsorted(SINCE_MS, since_ms, side="right")
        return np.where(last < 0, len(ACTIONS), last) * (len(SINCE_MS) + 1) + np.where(last < 0, 0, bracket)

    @staticmethod
    def _select(intensity: Floats) -> Floats:
        return select_hits(np.ascontiguousarray(intensity.transpose(1, 0, 2)), PEAKS)

    def scores(self, half: Spots, at: NDArray[np.int64]) -> Floats:
        found = self._select(self.intensity[self._state(*last_before(half, at))])
        return np.stack([own.spread(found[..., c]) for c, own in enumerate(self.spread)], -1)


def arrays(
    halves: Sequence[Spots],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """What `Markov.fit` takes: classes and positions (n, 8) of the future events, the last one (n,) and ms since."""
    rows, past = [], []
    for half in halves:
        at = windows(half)
        past.append(np.stack(last_before(half, at)))
        for t in at:
            events = clip_of(half, int(t)).anticipation[:MAX_EVENTS]
            row = [(e.action, e.position_ms) for e in events] + [(-1, OBSERVED_MS)] * (MAX_EVENTS - len(events))
            rows.append(row)
    table = np.array(rows, np.int64)
    last, since = np.concatenate(past, 1)
    return table[..., 0], table[..., 1], last, since


def wyscout(path: Path, matches: int) -> list[Spots]:
    """Halves of the model's training matches, labelled as broadcasts are."""
    from ballcast.data.events.event_grid import split_matches
    from ballcast.data.events.wyscout import read_table
    from ballcast.data.samples.spot_samples import as_spots, broadcast_match, merge_classes

    chosen = split_matches(read_table(path), "full")["train"][:matches]
    return [as_spots([half]) for feed in chosen for _, half in merge_classes(broadcast_match(feed)).periods()]


def run(model: SpotModel, shared: Path, chain_matches: int) -> dict[str, Any]:
    """All rows of the three pasts."""
    folder = shared / "data/footpass"
    truth = read_spots(folder / "playbyplay_val.json").videos
    trained = read_spots(folder / "playbyplay_train.json").videos
    at = {half.name: windows(half) for half in truth}
    clips = [clip_of(half, int(t)) for half in truth for t in at[half.name]]
    groups = [half.name for half in truth for _ in at[half.name]]
    classes, position_ms, last, since = arrays(trained)
    prior, markov = ClassPrior.fit(classes, position_ms), Markov.fit(classes, position_ms, last, since)
    chain = Chain(trained)
    feeds = Chain(wyscout(shared / "data/events/wyscout_leagues.parquet", chain_matches))

    record: dict[str, Any] = {"windows": len(clips), "halves": len(truth), "resamples": RESAMPLES, "rows": {}}
    for past, name in PASTS.items():
        seen = {half.name: half for half in read_spots(folder / f"playbyplay_{name}.json").videos}
        pairs = [(seen[half.name], at[half.name]) for half in truth]
        merged: dict[str, dict[str, Any]] = {"class prior": {}, "Markov chain": {}}
        for clip, (half, t) in zip(clips, ((half, t) for half, times in pairs for t in times), strict=True):
            action, ms = last_before(half, np.array([t]))
            label = [Event(ACTIONS[action[0]], OBSERVED_MS - int(ms[0]))] if action[0] >= 0 else []
            observed = replace(clip, observation=tuple(label))
            merged["class prior"][clip.name] = merge_bins(prior.predict(observed))
            merged["Markov chain"][clip.name] = merge_bins(markov.predict(observed))
        matches = {row: match_all(clips, predictions) for row, predictions in merged.items()}
        alike = "Markov chain, emitted alike"
        matches[alike] = match_bins(clips, np.concatenate([chain.scores(*pair) for pair in pairs]))
        other = np.concatenate([feeds.scores(*pair) for pair in pairs])
        matches["Markov chain of Wyscout, emitted alike"] = match_bins(clips, other)
        outputs = [model.run(*pair) for pair in pairs]
        ours = np.concatenate([model.scores(intensity) for intensity, _ in outputs])
        matches["embedded model"] = match_bins(clips, ours)
        rows = {row: intervals_of(found, groups) for row, found in matches.items()}
        record["rows"][past] = {row: describe(found) for row, found in rows.items()}
        for row in ("embedded model",):
            apart = difference(rows[alike], rows[row])
            record["rows"][past][row]["above Markov emitted alike"] = describe(apart)
        chance = np.concatenate([chance for _, chance in outputs])
        record["rows"][past]["embedded model"]["probabilities"] = reliability(chance, clips)
    return record


def intervals_of(matches: Matches, groups: Sequence[str]) -> Intervals:
    return bootstrap_matches(matches, len(groups), groups=groups, resamples=RESAMPLES)


def describe(found: Intervals) -> dict[str, Any]:
    """Per cent: mean of ten classes and of the eight that occur with their intervals, @1, and each class."""
    resampled, ap = 100 * found.resampled, 100 * found.ap

    def rounded(values: Any) -> list[float]:
        return [round(float(value), 2) for value in values]

    return {
        "ten classes": [round(float(ap.mean()), 2), *rounded(interval(resampled.mean((1, 2))))],
        "eight classes": [round(float(ap[:, OCCUR].mean()), 2), *rounded(interval(resampled[..., OCCUR].mean((1, 2))))],
        "at1": round(float(ap[0].mean()), 2),
        "classes": rounded(ap.mean(0)),
    }


def reliability(chance: Floats, clips: Sequence[Clip]) -> dict[str, Any]:
    """Within 5 s, of each class: mean probability, share that came, and AUC."""
    result = {}
    for c in OCCUR:
        p = chance[:, c, HORIZONS_S.index(5)]
        came = np.array([any(event.action == c for event in clip.anticipation) for clip in clips])
        rank = np.argsort(np.argsort(p, kind="stable")) + 1
        hits, misses = came.sum(), (~came).sum()
        auc = (rank[came].sum() - hits * (hits + 1) / 2) / (hits * misses)
        result[ACTIONS[c]] = {
            "predicted": round(float(p.mean()), 4), "came": round(float(came.mean()), 4), "auc": round(float(auc), 3)
        }  # fmt: skip
    return result


def show(record: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{record['windows']} windows; mAP of ten classes (95 %), of eight, @1")
    for past, rows in record["rows"].items():
        for name, row in rows.items():
            ten, eight = row["ten classes"], row["eight classes"]
            text = f"{ten[0]:.1f} ({ten[1]:.1f} to {ten[2]:.1f})  {eight[0]:.1f}  {row['at1']:.1f}"
            more = row.get("above Markov emitted alike")
            if more:
                low, high = more["ten classes"][1:]
                text += f"  above Markov emitted alike {more['ten classes'][0]:+.2f} ({low:+.2f} to {high:+.2f})"
            print(f"{past:5} {name:40} {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=SHARED, help="the folder with data/footpass and data/events")
    parser.add_argument("--model", type=Path, default=SPOT_MODEL, help="folder of a model of spots")
    parser.add_argument("--chain-matches", type=int, default=300, help="Wyscout matches of that chain")
    parser.add_argument("--record", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    if not (args.shared / "data/footpass").is_dir():
        print(f"{args.shared}: has no data/footpass, nothing to measure; give --shared or BALLCAST_SHARED")
        return
    record = run(open_spot_model(args.model), args.shared, args.chain_matches)
    show(record)
    if args.record:
        write_json(args.record, record, indent=1)


if __name__ == "__main__":
    main()

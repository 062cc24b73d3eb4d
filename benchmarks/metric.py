"""The official score of a test split, ours against the SoccerNet package, in one run.

    python -m benchmarks.metric [--clips 2376] [--resamples 1000]

Both get the same random labels and predictions and must agree to 1e-9; ours starts from records, as users do, the
package from arrays that are already laid out. Then the time of the score's 95 % intervals, by resampling the clips.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Clip, Event, Prediction
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import RESAMPLES, bootstrap

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from soccernet_reference import lay_out, reference_ap


def make(clips: int, seed: int = 0) -> tuple[list[Clip], dict[str, list[Prediction]]]:
    """Clips with about 2 events each and 2.9 predictions, as the paper's model emits."""
    rng = np.random.default_rng(seed)
    share = np.array([34, 32, 5, 6, 3, 3, 2, 5, 2, 1]) / 93
    labelled, predicted = [], {}
    for i in range(clips):
        times = np.sort(rng.integers(30_000, 35_000, rng.poisson(2.0)))
        events = tuple(Event(ACTIONS[rng.choice(10, p=share)], int(t)) for t in times)
        labelled.append(Clip(f"clip_{i + 1}", (), events))
        predicted[f"clip_{i + 1}"] = [
            Prediction.from_scores(int(t), (rng.dirichlet(share * 10) * rng.random()).tolist())
            for t in rng.integers(30_000, 35_000, rng.poisson(2.9))
        ]
    return labelled, predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=2376)
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    args = parser.parse_args()
    clips, predicted = make(args.clips)
    ours = []
    for _ in range(5):
        start = time.perf_counter()
        result = score(clips, predicted)
        ours.append(time.perf_counter() - start)
    arrays = lay_out(clips, predicted)
    start = time.perf_counter()
    reference = reference_ap(*arrays)
    theirs = time.perf_counter() - start
    worst = float(np.abs(result.ap - reference).max())
    ratio = theirs / np.median(ours)
    print(f"{args.clips} clips, six tolerances, largest difference {worst:.1e}")
    print(f"SoccerNet package / ballcast: {ratio:.0f} times the time")
    start = time.perf_counter()
    low, high = 100 * bootstrap(clips, predicted, resamples=args.resamples).avg
    seconds = time.perf_counter() - start
    interval = f"mAP {100 * result.avg:.2f}, 95 % interval {low:.2f} to {high:.2f}"
    print(f"{args.resamples} resamples: {seconds:.1f} s; {interval}")
    if worst > 1e-9 or ratio < 50:
        sys.exit("the scorer does not agree with the reference or is less than 50 times faster")
    if args.resamples <= RESAMPLES and seconds > 60:
        sys.exit("the intervals take more than a minute")


if __name__ == "__main__":
    main()

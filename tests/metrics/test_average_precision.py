"""Our scorer against the SoccerNet package, the fixture of the reference, and hand-worked numbers."""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction, grid_bin, label_bin
from ballcast.data.labels.soccernet import read_labels
from ballcast.inference.submission import read_submission
from ballcast.metrics.average_precision import Score, match_by_visibility, score, score_arrays, score_of_matches
from ballcast.metrics.ranked import ranked_ap

sys.path.append(str(Path(__file__).parents[1]))
from soccernet_reference import lay_out, reference_ap, reference_bin, submitted_bin


def score_by_visibility(clips: list[Clip], predicted: dict[str, list[Prediction]]) -> dict[str, Score]:
    return {name: score_of_matches(found) for name, found in match_by_visibility(clips, predicted).items()}


def one_hot(label: str, position: int, confidence: float) -> Prediction:
    return Prediction(label, position, confidence)


def test_what_lies_outside_the_grid_is_refused() -> None:
    """32 bins of 160 ms from 30 000: the last ends at 35 120."""
    inside, outside = (30_000, 35_000, 35_100), (29_900, 35_200)
    for at in inside:
        assert score([Clip("a", (), (Event("PASS", at),))], {"a": [one_hot("PASS", at, 0.9)]}).avg > 0
    for at in outside:
        with pytest.raises(InputError, match=f"event at {at} ms is outside"):
            score([Clip("a", (), (Event("PASS", at),))], {"a": []})
        with pytest.raises(InputError, match=f"prediction at {at} ms is outside"):
            score([Clip("a", (), (Event("PASS", 31_000),))], {"a": [one_hot("PASS", at, 0.9)]})


@pytest.mark.parametrize("name", ["metric", "metric_2"])
def test_equals_the_reference_fixtures(shared: Path, name: str) -> None:
    folder = shared / "fixtures" / name
    expected = json.loads((folder / "expected.json").read_text())
    result = score(
        read_labels(folder / "Labels-ball.json"), read_submission(folder / "results_anticipation.json")
    ).as_dict()
    assert result.keys() == expected.keys()
    for key in expected.keys() - {"per_class"}:
        assert result[key] == pytest.approx(expected[key], abs=1e-9)
    for key, row in expected["per_class"].items():
        assert result["per_class"][key] == pytest.approx(row, abs=1e-9)


events = st.builds(
    Event,
    label=st.sampled_from(ACTIONS[:4]) | st.sampled_from(ACTIONS),
    # Few distinct times, so that bins are often shared; multiples of 40 ms, as labels are; and any.
    position_ms=st.sampled_from([30000, 30159, 30160, 31240, 31250, 34160, 34480, 34800, 34999, 35000])
    | st.integers(750, 875).map(lambda frame: 40 * frame)
    | st.integers(30000, 35000),
    visible=st.booleans(),
)
levels = st.sampled_from([0.0, 1e-7, 0.005, 0.3, 0.5, 1.0]) | st.floats(0, 1, width=32)
predictions = st.builds(
    Prediction.from_scores,
    st.sampled_from([30000, 30160, 31240, 34480, 34640]) | st.integers(30000, 35000),
    st.lists(levels, min_size=10, max_size=10),
)
cases = st.lists(st.tuples(st.lists(events, max_size=8), st.lists(predictions, max_size=6)), min_size=1, max_size=10)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])  # the reference takes its time
@given(cases)
def test_equals_the_soccernet_package(case: list[tuple[list[Event], list[Prediction]]]) -> None:
    """Empty clips, no predictions, classes without events, shared bins, equal scores, 'not shown' events."""
    clips = [Clip(f"clip_{i}", (), tuple(e)) for i, (e, _) in enumerate(case)]
    predicted = {f"clip_{i}": p for i, (_, p) in enumerate(case)}
    assert score(clips, predicted).ap == pytest.approx(reference_ap(*lay_out(clips, predicted)), abs=1e-12)


def test_every_label_of_a_frame_scores_as_in_the_soccernet_package() -> None:
    """A clip for each multiple of 40 ms, with predictions half a second off on both sides: the tolerance's edge."""
    frames = range(30000, 35001, 40)
    clips = [Clip(f"clip_{ms}", (), (Event("PASS", ms),)) for ms in frames]
    rng = np.random.default_rng(0)
    predicted = {
        f"clip_{ms}": [
            one_hot("PASS", t, float(rng.random())) for t in (ms - 560, ms - 480, ms + 480) if 30000 <= t < 35000
        ]
        for ms in frames
    }
    assert score(clips, predicted).ap == pytest.approx(reference_ap(*lay_out(clips, predicted)), abs=1e-12)


def test_labels_are_binned_as_the_reference_bins_them_at_every_millisecond() -> None:
    every = np.arange(30000, 35001)
    assert label_bin(every).tolist() == [reference_bin(str(ms)) for ms in every.tolist()]
    assert every[label_bin(every) != grid_bin(every)].tolist() == [34160, 34480, 34800]
    assert label_bin(np.array([29999, 29000])).max() < 0


def test_predictions_are_binned_as_they_were_written() -> None:
    every = np.arange(30000, 35001)
    assert grid_bin(every).tolist() == [submitted_bin(ms) for ms in every.tolist()]
    assert [grid_bin(ms) for ms in every.tolist()] == grid_bin(every).tolist()


def test_tolerance_is_the_full_width() -> None:
    """At δ = 1 s an event takes predictions up to 3 bins (480 ms) away: 3.125 is the half width."""
    clips = [Clip("a", (), (Event("SHOT", 32000),))]
    near, far = {"a": [one_hot("SHOT", 32480, 0.9)]}, {"a": [one_hot("SHOT", 32640, 0.9)]}
    shot = ACTIONS.index("SHOT")
    assert score(clips, near).ap[0, shot] == 1
    assert score(clips, far).ap[:2, shot].tolist() == [0, 1]


def test_hand_worked_average_precision() -> None:
    """Two shots, three predictions: hit at 0.9, miss at 0.8, hit at 0.7.

    Recall 0.5 at precision 1, recall 1 at precision 2/3: recalls 0 … 0.5 read 1 (6 points), 0.6 … 1 read 2/3 (5).
    """
    clips = [Clip("a", (), (Event("SHOT", 30500),)), Clip("b", (), (Event("SHOT", 33000),)), Clip("c")]
    predicted = {
        "a": [one_hot("SHOT", 30500, 0.9)],
        "b": [one_hot("SHOT", 33000, 0.7)],
        "c": [one_hot("SHOT", 31000, 0.8)],
    }
    result = score(clips, predicted)
    assert result.ap[:, ACTIONS.index("SHOT")] == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    assert result.at["at1"] == pytest.approx((6 + 10 / 3) / 11 / 10)  # nine classes without events count as 0


def test_a_bin_holds_the_last_event_of_any_class() -> None:
    clips = [Clip("a", (), (Event("PASS", 30010), Event("SHOT", 30020)))]
    result = score(clips, {"a": [one_hot("PASS", 30000, 0.9)]})
    assert result.events.tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert result.avg == 0


def test_exact_mode_knows_no_grid() -> None:
    """Two events in one bin both count, and 499 ms is near enough at δ = 1 s, 501 is not."""
    clips = [Clip("a", (), (Event("PASS", 31000), Event("PASS", 31010)))]
    predicted = {"a": [one_hot("PASS", 30501, 0.9), one_hot("PASS", 31510, 0.8)]}
    assert score(clips, predicted, exact=True).ap[0, 0] == 1
    assert score(clips, {"a": [one_hot("PASS", 30499, 0.9)]}, exact=True).ap[0, 0] == 0


def test_label_mode_reads_only_label_and_confidence() -> None:
    clips = [Clip("a", (), (Event("PASS", 31000),))]
    prediction = Prediction("DRIVE", 31000, 0.6, (0.5, 0.6, *[0.0] * 8))
    assert score(clips, {"a": [prediction]}, read="vector").ap[0, 0] == 1
    assert score(clips, {"a": [prediction]}, read="label").ap[0, 0] == 0
    drive = [Clip("a", (), (Event("DRIVE", 31000),))]
    assert score(drive, {"a": [prediction]}, read="label").ap[0, 1] == 1


def test_visibility_scores_each_kind_separately() -> None:
    clips = [Clip("a", (), (Event("PASS", 30500), Event("PASS", 34000, visible=False)))]
    predicted = {"a": [one_hot("PASS", 30500, 0.9), one_hot("PASS", 34000, 0.95), one_hot("PASS", 32300, 0.5)]}
    by = score_by_visibility(clips, predicted)
    assert by["visible"].ap[0, 0] == 1  # the hit on the hidden pass is not held against it
    assert by["not shown"].ap[0, 0] == 1
    assert by["visible"].events[0] == by["not shown"].events[0] == 1


def test_time_off_the_grid_is_an_error_with_its_clip() -> None:
    with pytest.raises(InputError, match="clip_9: prediction at 29000 ms"):
        score([Clip("clip_9")], {"clip_9": [one_hot("PASS", 29000, 0.5)]})


def test_no_clips_and_no_predictions_score_zero() -> None:
    assert score([], {}).avg == 0
    assert score([Clip("a", (), (Event("PASS", 31000),))], {}).avg == 0


@pytest.mark.filterwarnings("error")
def test_scores_beyond_float32_are_just_the_surest() -> None:
    clips = [Clip("a", (), (Event("PASS", 31000),))]
    huge, sure = ({"a": (one_hot("PASS", 31000, confidence),)} for confidence in (1e308, 1.5))
    assert score(clips, huge).avg == score(clips, sure).avg == pytest.approx(0.1)


def test_arrays_score_as_predictions_do() -> None:
    rng = np.random.default_rng(3)
    clips = [
        Clip(
            f"clip_{i}",
            anticipation=tuple(Event(ACTIONS[rng.integers(10)], int(t)) for t in rng.integers(30_000, 35_000, 3)),
        )
        for i in range(40)
    ]
    clip = rng.integers(0, 40, 150)
    position_ms, scores = rng.integers(30_000, 35_000, 150), rng.random((150, 10)).astype(np.float32)
    predictions: dict[str, list[Prediction]] = {}
    for c, t, vector in zip(clip.tolist(), position_ms.tolist(), scores.tolist(), strict=True):
        predictions.setdefault(f"clip_{c}", []).append(Prediction.from_scores(t, vector))
    np.testing.assert_array_equal(score_arrays(clips, clip, position_ms, scores).ap, score(clips, predictions).ap)


def plain_times(clip: Clip, predictions: list[Prediction], exact: bool) -> Any:
    """A clip's events and predictions in order of time; on the grid the last of each bin."""
    events = [
        (e.position_ms if exact else int(label_bin(np.array(e.position_ms))), e.action, e.visible)
        for e in clip.anticipation
    ]
    predicted = [(p.position_ms if exact else int(grid_bin(p.position_ms)), p.vector) for p in predictions]
    if not exact:
        events, predicted = list({e[0]: e for e in events}.values()), list({p[0]: p for p in predicted}.values())
    return sorted(events, key=lambda e: e[0]), sorted(predicted, key=lambda p: p[0])


def plain_ap(
    clips: list[Clip], predictions: dict[str, list[Prediction]], *, exact: bool = False, visible: bool | None = None
) -> np.ndarray:
    """(6, 10): the score once more, as plain loops; `visible`: of the events of one kind only."""
    laid = [plain_times(clip, predictions.get(clip.name, []), exact) for clip in clips]
    ap = np.zeros((6, 10))
    for (w, width), c in product(enumerate((1, 2, 3, 4, 5, 11)), range(10)):
        made, total = [], 0
        for events, predicted in laid:
            scores = [np.float32(vector[c]) - np.float32(1e-6) for _, vector in predicted]
            matched: dict[int, bool] = {}
            for time, action, shown in events:
                near = abs(np.array([t for t, _ in predicted]) - time) <= width * (1000 if exact else 6.25) / 2
                free = [i for i, s in enumerate(scores) if near[i] and s >= 0 and i not in matched]
                if action == c and free:
                    matched[max(free, key=lambda i: (scores[i], -i))] = visible in (None, shown)
                total += action == c and visible in (None, shown)
            # A prediction matched with an event of the other kind is ignored.
            made += [(s, i in matched) for i, s in enumerate(scores) if s >= 0 and matched.get(i, True)]
        curve = []
        for threshold in np.linspace(0, 1, 200):
            reached = [true for s, true in made if s >= threshold]
            curve.append((sum(reached) / max(len(reached), 1), sum(reached) / max(total, 1)))
        ap[w, c] = sum(max((p for p, r in curve if r >= level), default=0) for level in np.arange(11) / 10) / 11
    return ap


@pytest.mark.parametrize("seed", range(2))
def test_equals_plain_loops(seed: int) -> None:
    """Three actions, often in one bin, and scores of few values, some of them 0."""
    rng = np.random.default_rng(seed)

    def times(most: int) -> list[int]:
        return [30_000 + 80 * int(t) for t in rng.integers(0, 60, rng.integers(0, most))]

    clips = [
        Clip(f"c{i}", (), tuple(Event(ACTIONS[rng.integers(3)], t, visible=bool(rng.integers(2))) for t in times(7)))
        for i in range(7)
    ]
    predictions = {
        f"c{i}": [Prediction.from_scores(t, [*(rng.integers(0, 5, 3) / 5).tolist(), *[0.0] * 7]) for t in times(9)]
        for i in range(6)
    }
    for exact in (False, True):
        np.testing.assert_allclose(score(clips, predictions, exact=exact).ap, plain_ap(clips, predictions, exact=exact))
    by = score_by_visibility(clips, predictions)
    for name, visible in (("visible", True), ("not shown", False)):
        np.testing.assert_allclose(by[name].ap, plain_ap(clips, predictions, visible=visible))
    assert score(clips, predictions).avg > 0.05


def test_json_of_a_score() -> None:
    """A pass found at every tolerance, a shot 600 ms late: missed at 1 s, found from 2 s on."""
    clips = [Clip("a", (), (Event("PASS", 31000), Event("SHOT", 33000)))]
    tree = score(clips, {"a": [one_hot("PASS", 31000, 0.9), one_hot("SHOT", 33600, 0.9)]}).as_dict()
    per_class = tree.pop("per_class")
    assert per_class["at1"] == [1, *[0] * 9]
    assert all(per_class[name] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0] for name in ("at2", "at3", "at4", "at5", "atInfty"))
    assert tree.pop("avg") == pytest.approx((0.1 + 5 * 0.2) / 6)
    assert tree == {"at1": 0.1, **dict.fromkeys(("at2", "at3", "at4", "at5", "atInfty"), 0.2)}


def test_a_millionth_is_the_least_score_that_counts() -> None:
    """As in the reference, which takes 1e-6 from every score and leaves out what is then below zero."""
    clips = [Clip("a", (), (Event("PASS", 31000),))]
    least, less = (np.full((1, 10), s, np.float32) for s in (1e-6, 0.99e-6))
    at = np.array([0]), np.array([31_000])
    assert score_arrays(clips, *at, least).ap[:, 0].tolist() == [1] * 6
    assert score_arrays(clips, *at, less).ap.max() == 0
    everybody = np.ones((1, 1), bool)
    assert ranked_ap(clips, *at, least, everybody, levels=10)[0, 0] == 1
    assert ranked_ap(clips, *at, less, everybody, levels=10).max() == 0

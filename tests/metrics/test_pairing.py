"""Who is paired with whom, worked out by hand."""

from ballcast.core.clips import Clip, Event, Prediction
from ballcast.metrics.pairing import Pair, pair, pair_all


def test_the_same_action_comes_first_then_the_nearest_of_what_is_left() -> None:
    shot, early, late = Event("SHOT", 31_000), Event("PASS", 30_200), Event("PASS", 34_000)
    a, b, c = Prediction("PASS", 31_000, 0.5), Prediction("SHOT", 32_000, 0.4), Prediction("CROSS", 33_500, 0.3)
    # The pass at 31 s is nearest to the shot, but takes the early pass: the shot is for the prediction of a shot.
    assert pair([a, b, c], [shot, early, late], reach_ms=2_500) == [Pair(a, early), Pair(b, shot), Pair(c, late)]
    # Within one action only, the cross is of nothing and the late pass is missed.
    assert pair([a, b, c], [shot, early, late], reach_ms=2_500, across=False) == [
        Pair(a, early),
        Pair(b, shot),
        Pair(c, None),
        Pair(None, late),
    ]


def test_reach_is_a_limit_and_is_included() -> None:
    event, guess = Event("PASS", 31_000), Prediction("PASS", 32_000, 0.5)
    assert pair([guess], [event], reach_ms=1_000) == [Pair(guess, event)]
    assert pair([guess], [event], reach_ms=999) == [Pair(guess, None), Pair(None, event)]


def test_of_equals_the_surer_and_then_the_earlier() -> None:
    event = Event("PASS", 31_000)
    unsure, sure = Prediction("PASS", 30_500, 0.2), Prediction("PASS", 31_500, 0.6)
    assert pair([unsure, sure], [event], reach_ms=5_000) == [Pair(unsure, None), Pair(sure, event)]
    early, late = Prediction("PASS", 30_500, 0.2), Prediction("PASS", 31_500, 0.2)
    assert pair([late, early], [event], reach_ms=5_000) == [Pair(late, None), Pair(early, event)]


def test_right_and_by_how_much() -> None:
    wrong = Pair(Prediction("CROSS", 31_000, 1.0), Event("SHOT", 31_160))
    assert not wrong.right
    assert wrong.error_ms == -160
    assert not Pair(None, Event("SHOT", 31_160)).right


def test_all_clips_also_those_nothing_was_said_of() -> None:
    clips = [Clip("a", (), (Event("PASS", 31_000),)), Clip("b")]
    assert pair_all(clips, {"b": [Prediction("OUT", 32_000, 0.1)]}, reach_ms=5_000) == {
        "a": [Pair(None, Event("PASS", 31_000))],
        "b": [Pair(Prediction("OUT", 32_000, 0.1), None)],
    }

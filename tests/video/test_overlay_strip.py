"""The strip: every label inside it, none over another, at its time, as sure as it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Forecast, Prediction
from ballcast.video.overlay_strip import FADE_MS, PAST_MS, Strip

predictions = st.lists(
    st.builds(Prediction, st.sampled_from(ACTIONS), st.integers(0, 5000), st.floats(0, 1)), min_size=1, max_size=8
)


def column(strip: Strip, ahead_ms: float) -> int:
    return round(strip.width * (ahead_ms + PAST_MS) / (5000 + PAST_MS + 100))


def differs(strip: Strip, now_ms: float) -> np.ndarray:
    """(width,) bool: where the strip shows more than its empty panel."""
    empty = Strip(width=strip.width, timeline=[])
    rows = min(strip.height, empty.height)
    change = abs(strip.draw(now_ms)[:rows].astype(int) - empty.draw(0)[:rows].astype(int))
    return change.max((0, 2)) > 24


@settings(max_examples=60, deadline=None)
@given(predictions, st.sampled_from([224, 398, 640, 1280]))
def test_labels_stay_inside_and_apart(made: list[Prediction], width: int) -> None:
    strip = Strip(width=width, timeline=[Forecast(0, tuple(made))])
    labels = strip._placed[0]
    for a in labels:
        assert a.left >= 0
        assert a.left + a.width <= strip._across + 1
        for b in labels:
            assert a is b or a.row != b.row or a.left + a.width <= b.left or b.left + b.width <= a.left
    assert labels[0].prediction.confidence == max(p.confidence for p in made)


@pytest.mark.parametrize("width", [398, 1280])
@pytest.mark.parametrize("label", ACTIONS)
def test_four_at_once_are_all_shown(width: int, label: str) -> None:
    made = Forecast(0, tuple(Prediction(label, 2500 + n, 0.5) for n in range(4)))
    strip = Strip(width=width, timeline=[made])
    assert len(strip._placed[0]) == 4
    assert strip.draw(0).shape == (strip.height, width, 3)
    assert strip.height % 2 == 0


def test_a_label_moves_to_now_and_goes() -> None:
    strip = Strip(width=400, timeline=[Forecast(1000, (Prediction("SHOT", 4000, 0.8),))])
    assert not differs(strip, 999).any()  # not anticipated yet
    for now, ahead in ((1000, 3000), (2500, 1500), (4000, 0)):
        shown = np.flatnonzero(differs(strip, now))
        assert abs(shown[0] - column(strip, ahead)) <= 2
    assert not differs(strip, 4000 + PAST_MS).any()


def test_surer_is_brighter_and_longer() -> None:
    brightness = []
    for sure in (0.1, 0.5, 0.9):
        strip = Strip(width=400, timeline=[Forecast(0, (Prediction("PASS", 2000, sure),))])
        brightness.append(strip.draw(0).astype(float).sum())
    assert brightness == sorted(brightness)


def test_what_was_anticipated_a_step_ago_fades() -> None:
    timeline = [Forecast(0, (Prediction("OUT", 4000, 0.9),)), Forecast(1000, ())]
    strip = Strip(width=400, timeline=timeline)
    widths = [differs(strip, now).sum() for now in (999, 1000, 1000 + FADE_MS)]
    assert widths[0] > widths[1] > widths[2] == 0


def test_the_order_given_does_not_matter() -> None:
    timeline = [Forecast(t, (Prediction("PASS", t + 2000, 0.5),)) for t in (0, 1000, 2000)]
    there, back = (Strip(width=300, timeline=t).draw(1500) for t in (timeline, timeline[::-1]))
    assert np.array_equal(there, back)

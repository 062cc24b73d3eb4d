"""Forecasts along a video with damage and with scenes that show no pitch."""

from pathlib import Path

import numpy as np
import pytest

import ballcast
from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap, Scene
from ballcast.inference.loading import SIMULATED, UNKNOWN, origin_of
from ballcast.inference.video_predictor import NO_PITCH, Span, VideoPredictor
from benchmarks.serve import Quick
from tests.video.test_pitch import paint_video

FRAME = np.zeros((4, 4), np.uint8)


def run(items: list[np.ndarray | Gap | Scene], span: Span = Span()) -> tuple[list[int], list[Gap]]:
    """Times of the forecasts, and the gaps, of a video."""
    along = VideoPredictor(Quick(), span)  # type: ignore[arg-type]
    times = [forecast.at_ms for item in items if (forecast := along.push(item)) is not None]
    along.end("a.mp4")
    return times, along.gaps


def test_a_gap_begins_a_new_window() -> None:
    gap = Gap(8000, 9000, "a picture is damaged")
    times, gaps = run([*[FRAME] * 200, gap, *[FRAME] * 150])
    assert times == [5000, 6000, 7000, 8000, 14_000, 15_000]
    assert gaps == [gap]


def test_forecasts_without_a_pitch_are_withheld_and_listed() -> None:
    lost, found = Scene(7000, pitch=False), Scene(9000, pitch=True)
    times, gaps = run([*[FRAME] * 174, lost, *[FRAME] * 60, found, *[FRAME] * 40])
    assert times == [5000, 6000, 10_000]
    assert gaps == [Gap(7000, 10_000, NO_PITCH, "pitch")]
    times, gaps = run([lost, *[FRAME] * 200])
    assert times == []  # and no error: there was something to forecast from
    assert gaps == [Gap(5000, 8000, NO_PITCH, "pitch")]


def test_gaps_and_forecasts_come_in_order_of_time() -> None:
    came: list[Gap | Forecast] = []
    damage = Gap(13_000, 14_000, "a picture is damaged")
    along = VideoPredictor(Quick(), on_gap=came.append)  # type: ignore[arg-type]
    lost, found = Scene(7000, pitch=False), Scene(9000, pitch=True)
    for item in [*[FRAME] * 174, lost, *[FRAME] * 60, found, *[FRAME] * 91, damage, *[FRAME] * 130]:
        forecast = along.push(item)
        if forecast is not None:
            came.append(forecast)
    hidden = Gap(7000, 10_000, NO_PITCH, "pitch")
    assert [one if isinstance(one, Gap) else one.at_ms for one in came] == [
        *(5000, 6000, hidden, 10_000, 11_000, 12_000, 13_000, damage, 19_000)
    ]


def test_nothing_to_forecast_from_is_an_error() -> None:
    with pytest.raises(InputError, match=r"is only 4\.0 s long"):
        run([FRAME] * 100)
    with pytest.raises(InputError, match=r"no 5 s of its 9\.0 s came without a gap"):
        run([*[FRAME] * 100, Gap(4000, 5000, "a picture is damaged"), *[FRAME] * 100])


def test_a_room_gets_no_forecast_and_a_pitch_does(tmp_path: Path) -> None:
    """With the real networks, from a file to the forecasts."""
    model = ballcast.load(runtime="onnx")
    room = paint_video(tmp_path / "room.mp4", [False] * 6)
    with model.video(room) as forecasts:
        assert list(forecasts) == []
    assert forecasts.gaps == [Gap(5000, 6000, NO_PITCH, "pitch")]
    assert forecasts.about["origin"] == SIMULATED
    assert len(list(model.video(room, any_video=True))) == 2


def test_origin(tmp_path: Path) -> None:
    assert origin_of(SAMPLES / "anticipator") == SIMULATED
    (tmp_path / "config.json").write_text('{"metadata": {"origin": "trained on SN-BAA"}}')
    assert origin_of(tmp_path) == "trained on SN-BAA"
    assert origin_of("someone/model") == UNKNOWN

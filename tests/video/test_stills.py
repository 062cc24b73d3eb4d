"""The pictures of a video at given times."""

import numpy as np
import pytest

from ballcast.video.stills import stills
from tests.video.conftest import Make, number_of


def shown(picture: object) -> int:
    return number_of(np.asarray(picture).mean(-1))


def test_the_picture_at_each_time_and_none_after_the_end(make: Make) -> None:
    video = make("a.mp4", range(50))
    pictures = stills(video, [0, 39, 40, 1_000, 1_980, 1_999, 2_000, 9_000])
    assert [None if p is None else shown(p) for p in pictures] == [0, 0, 1, 25, 49, 49, None, None]


def test_from_the_middle_on_and_smaller(make: Make) -> None:
    (picture,) = stills(make("a.mp4", range(50), size=(64, 96)), [1_500], width=48)
    assert picture is not None
    assert picture.size == (48, 32)


def test_colour_survives_and_rotation_is_undone(make: Make) -> None:
    (picture,) = stills(make("a.mp4", range(5), size=(64, 96), rotate=90), [0])
    assert picture is not None
    assert picture.size == (64, 96)  # (width, height) of the upright picture
    assert picture.mode == "RGB"


def test_no_times_no_pictures(make: Make) -> None:
    assert stills(make("a.mp4"), []) == []


@pytest.mark.parametrize("every", [3, 25])
def test_a_slow_video_repeats_its_pictures(make: Make, every: int) -> None:
    video = make("a.mp4", [every * i for i in range(4)])
    times = [0, 40 * every - 1, 40 * every, 100 * every]
    assert [shown(p) for p in stills(video, times)] == [0, 0, 1, 2]

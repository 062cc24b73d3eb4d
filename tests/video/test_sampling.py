"""Frame indices: the numbers of the method by hand, and what must hold for any window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.errors import InputError
from ballcast.video.sampling import (
    clip_frames,
    clip_starts,
    clips_per_window,
    distinct_stacks,
    snap,
    span,
    stack_frames,
)

starts = st.integers(0, 10**6)
lengths = st.sampled_from([15, 33])


def test_the_numbers_of_the_method() -> None:
    assert span(15) == 29
    assert span(33) == 65
    assert clips_per_window() == 33
    assert clips_per_window(span=65) == 21
    assert clips_per_window(window=28) == 0
    assert clips_per_window(window=29) == 1
    assert clip_starts(250)[[0, 1, -1]].tolist() == [250, 253, 346]
    assert clip_frames(np.array([250]))[0].tolist() == [
        250,
        252,
        254,
        256,
        258,
        260,
        262,
        264,
        266,
        268,
        270,
        272,
        274,
        276,
        278,
    ]
    assert len(distinct_stacks(clip_starts(0)).starts) == 41
    assert stack_frames(np.array([7]))[0].tolist() == [7, 9, 11]


@given(starts, lengths)
def test_a_window_is_used_to_its_end_and_no_further(start: int, frames: int) -> None:
    used = clip_frames(clip_starts(start, frames=frames), frames=frames)
    assert used.min() == start
    assert start + 125 - 3 <= used.max() < start + 125


@given(st.lists(starts, min_size=1, max_size=40), lengths)
def test_distinct_stacks_put_together_are_the_clips(clips: list[int], frames: int) -> None:
    found = distinct_stacks(np.array(clips), frames=frames)
    assert len(set(found.starts.tolist())) == len(found.starts)
    assert found.of_clip.shape == (len(clips), frames // 3)
    again = stack_frames(found.starts)[found.of_clip].reshape(len(clips), frames)
    assert np.array_equal(again, clip_frames(np.array(clips), frames=frames))


@given(starts)
def test_rolling_windows_share_the_grid_and_never_look_ahead(start: int) -> None:
    on_grid, own = clip_starts(snap(start)), clip_starts(start)
    assert (on_grid % 3 == 0).all()
    assert ((own - 3 < on_grid) & (on_grid <= own)).all()


@given(st.integers(-10, 100).filter(lambda n: n <= 0 or n % 3))
def test_a_clip_is_whole_stacks(frames: int) -> None:
    with pytest.raises(InputError, match="stacks of 3"):
        span(frames)

"""Where the windows of a stream begin: on the clips' grid, and never late."""

from hypothesis import given
from hypothesis import strategies as st

from ballcast.video.sampling import snap


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_rolling_windows_share_the_grid_and_never_look_ahead(start: int, stride: int) -> None:
    on_grid = snap(start, stride)
    assert on_grid % stride == 0
    assert start - stride < on_grid <= start

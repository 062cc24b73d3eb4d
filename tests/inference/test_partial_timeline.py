"""The forecasts of an interrupted `predict`: whatever bit of their file is flipped, no wrong one is kept."""

import errno
from io import StringIO
from pathlib import Path

import pytest

from ballcast.core.errors import NoSpace
from ballcast.core.events import Forecast, Gap
from ballcast.inference.partial_timeline import PartialTimeline

MADE = [Forecast(5000), Gap(6000, 7000, "damage"), Forecast(8000)]
KEY = {"video": "a.mp4", "bytes": 7}


def kept(target: Path) -> PartialTimeline:
    with PartialTimeline(target, KEY) as part:
        return part


def test_no_flipped_bit_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    with PartialTimeline(target, KEY) as part:
        part.append(MADE)
        part.finish()
    raw = part.path.read_bytes()
    assert (kept(target).kept, kept(target).complete) == (MADE, True)
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        part.path.write_bytes(damaged)
        found = kept(target)
        assert found.kept == MADE[: len(found.kept)], bit  # none, or all but the end
        assert not found.complete


def test_a_disk_that_is_full_when_the_file_is_closed(tmp_path: Path) -> None:
    class Full(StringIO):
        def close(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")  # of what was not flushed

    part = PartialTimeline(tmp_path / "out.json", KEY)
    part._file = Full()
    with pytest.raises(NoSpace, match=r"out\.json\.part: the disk is full"):
        part.__exit__(None, None, None)

"""Videos decoded in the sandbox: the same frames as without it, of every container."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ballcast.video.file import VideoFile
from ballcast_server.confined import decoder
from ballcast_server.settings import Limits
from tests.video.conftest import make_video

SORTS: dict[str, dict[str, Any]] = {
    "a.mp4": {"audio": True},
    "a.mkv": {},
    "a.ts": {"audio": True},
    "a.webm": {"codec": "libvpx-vp9", "codec_options": {"deadline": "realtime", "cpu-used": "8"}},
    "a.avi": {"codec": "mpeg4"},
    "b.mp4": {"codec": "libx265", "codec_options": {"x265-params": "log-level=none"}},
}


@pytest.mark.parametrize("name", SORTS)
def test_the_frames_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    path = make_video(tmp_path / name, range(40), size=(32, 64), **SORTS[name])
    with VideoFile(path) as video:
        expected = np.stack(list(video.frames()))
    with decoder.frames(path, name, Limits()) as frames:
        found = np.stack([frame for frame in frames if isinstance(frame, np.ndarray)])
    np.testing.assert_array_equal(found, expected)


def test_a_video_behind_a_link_is_read(tmp_path: Path) -> None:
    """A folder of videos (--videos) may hold links to another disk."""
    path = make_video(tmp_path / "a.mp4", range(40), size=(32, 64))
    (tmp_path / "link.mp4").symlink_to(path)
    assert decoder.probe(tmp_path / "link.mp4", "link.mp4", Limits()).width == 64

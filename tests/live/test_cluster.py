"""Streams on two Ray nodes of this machine, one of which is killed."""

from pathlib import Path

from ray_nodes import needs_ray, run_apart
from stream_server import DrippingServer

from tests.video.conftest import make_video


@needs_ray
def test_streams_go_on_when_a_machine_dies(tmp_path: Path) -> None:
    raw = make_video(tmp_path / "a.ts", range(2000)).read_bytes()
    pieces = [raw[at : at + len(raw) // 400] for at in range(0, len(raw), len(raw) // 400)]
    file = make_video(tmp_path / "b.mp4", range(300))
    with DrippingServer(pieces, every_s=0.1) as one, DrippingServer(pieces, every_s=0.1) as two:
        assert "all shown" in run_apart("tests.live.streams_on_cluster", file, one.address, two.address)

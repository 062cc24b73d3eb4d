"""The server's streams on two Ray nodes of this machine, one of which is killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ray_nodes import Nodes, needs_ray, run_apart
from stream_server import DrippingServer

from tests.video.conftest import make_video


@needs_ray
def test_the_servers_streams_go_on_when_a_machine_dies(tmp_path: Path, ray_nodes: Nodes) -> None:
    raw = make_video(tmp_path / "a.ts", range(4000)).read_bytes()
    pieces = [raw[at : at + len(raw) // 800] for at in range(0, len(raw), len(raw) // 800)]
    with DrippingServer(pieces, every_s=0.18) as one, DrippingServer(pieces, every_s=0.18) as two:
        addresses = ray_nodes.door, one.address, two.address
        shown = run_apart("tests.server.web.serve_on_cluster", tmp_path, *addresses, timeout=600)
        assert "all shown" in shown


@needs_ray
@pytest.mark.parametrize("command", [("serve", "--no-token", "--port", "0"), ("live", "rtsp://127.0.0.1:1/a")])
def test_a_cluster_that_is_not_there(ballcast: Callable, clean_failure: Callable, command: tuple[str, ...]) -> None:
    done = ballcast(*command, "--cluster", "127.0.0.1:1")
    clean_failure(done, "--cluster 127.0.0.1:1: no Ray cluster answers there", "`ray start --head`")


@pytest.mark.parametrize("command", [("serve", "--no-token"), ("live", "rtsp://camera/1")])
def test_followers_need_a_cluster(ballcast: Callable, clean_failure: Callable, command: tuple[str, ...]) -> None:
    clean_failure(ballcast(*command, "--followers", "4"), "--followers 4: needs --cluster", "`ray start --head`")
    none = ballcast(*command, "--followers", "0", "--cluster", "auto")
    assert none.returncode == 2
    assert "'--followers'" in none.stderr


def test_stdin_is_not_on_the_cluster(ballcast: Callable, clean_failure: Callable) -> None:
    clean_failure(ballcast("live", "-", "--cluster", "127.0.0.1:1"), "stdin is here, not on the cluster")

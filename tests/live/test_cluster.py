"""Streams on two Ray nodes of this machine, one of which is killed."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from stream_server import DrippingServer

from ballcast.core.errors import InputError
from ballcast.live.status import LiveForecast, Status
from tests.video.conftest import make_video

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'ballcast[ray]')")


def test_streams_go_on_when_a_machine_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from ballcast.live.cluster import follow_streams

    monkeypatch.setenv("RAY_worker_niceness", "0")  # of 15 by default: beside other tests they would hardly start
    model = {"runtime": "onnx", "size": "own"}  # the embedded one: without torch, actors start sooner
    raw = make_video(tmp_path / "a.ts", range(2000)).read_bytes()
    pieces = [raw[at : at + len(raw) // 400] for at in range(0, len(raw), len(raw) // 400)]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
        with DrippingServer(pieces, every_s=0.1) as one, DrippingServer(pieces, every_s=0.1) as two:
            streams = [one.address, two.address]
            forecasts = dict.fromkeys(streams, 0)
            gone: list[str] = []
            for address, record in follow_streams(streams, cluster=cluster.address, model=model, speed=0, give_up_s=30):
                assert not (isinstance(record, Status) and record.state == "error"), record
                forecasts[address] += isinstance(record, LiveForecast)
                if len(nodes) == 2 and min(forecasts.values()) >= 1:
                    own = ray.get_runtime_context().get_node_id()  # not the one this process hangs on
                    nodes.remove(victim := next(node for node in nodes if node.node_id != own))
                    cluster.remove_node(victim, allow_graceful=False)
                    forecasts = dict.fromkeys(streams, 0)
                elif isinstance(record, Status) and "the machine that followed it is gone" in record.message:
                    gone.append(address)
                if gone and min(forecasts.values()) >= 1:
                    break
        assert len(gone) == 1  # the other went on where it was
        with pytest.raises(InputError, match="nowhere"):
            next(follow_streams(["a.ts"], cluster=cluster.address, model={"model": str(tmp_path / "nowhere")}))
    finally:
        cluster.shutdown()

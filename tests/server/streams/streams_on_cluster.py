"""Follow two streams on two nodes, one of which is killed; run by test_cluster.py in a process of its own.

python -m tests.server.streams.streams_on_cluster FILE NODES ADDRESS ADDRESS
"""

import json
import subprocess
import sys
import time

from ballcast.live.status import LAST, LiveForecast, Status
from ballcast.video.sources import SourceOptions
from ballcast_server.streams.cluster import ClusterSessions
from tests.ray_nodes import Nodes

MODEL = {"runtime": "onnx", "size": "own"}  # the embedded one: without torch, actors start sooner


def follow_file(file: str, cluster: str) -> None:
    """`ballcast live FILE --cluster`, to the file's end."""
    options = ["--speed", "0", "--any-video", "--runtime", "onnx", "--size", "own", "--json", "-"]
    command = [sys.executable, "-m", "ballcast", "live", file, "--cluster", cluster, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    made = [record["at_ms"] for record in records if record["type"] == "anticipation"]
    assert made == list(range(5000, 12001, 1000)), made
    assert records[-1]["state"] == "ended"
    print("live shown", flush=True)


def main(file: str, door: str, *addresses: str) -> None:
    """Print a line for each thing that was shown; an AssertionError where it was not."""
    nodes = Nodes(door)
    cluster = nodes.have(2, cpus=2)
    with ClusterSessions(cluster, model=MODEL) as streams:
        sessions = [streams.session(address, source=SourceOptions(speed=0, give_up_s=30)) for address in addresses]
        listeners = [session.subscribe(capacity=4096) for session in sessions]
        for session in sessions:
            session.start()
        counts, gone, at_ms = [0, 0], [0, 0], [-1, -1]
        killed = False
        end = time.monotonic() + 300
        while not (sum(gone) and min(counts) >= 1):
            assert time.monotonic() < end, (counts, [session.status for session in sessions])
            for i, listener in enumerate(listeners):
                record = listener.get(0.1)
                if isinstance(record, LiveForecast):
                    counts[i] += 1
                    assert record.forecast.at_ms > at_ms[i], "the clock went back"
                    at_ms[i] = record.forecast.at_ms
                elif isinstance(record, Status):
                    print(i, record.state, record.message, flush=True)
                    assert record.state not in LAST, record
                    gone[i] += "the machine that followed it is gone" in record.message
            if not killed and min(counts) >= 1:
                nodes.kill()
                killed = True
                print("killed one node", flush=True)
                counts = [0, 0]
        assert sorted(gone) == [0, 1], gone  # the other went on where it was
        assert all(session.status.reconnects >= count for session, count in zip(sessions, gone, strict=True))
        sessions[0].close()  # a loaded machine may have room for one stream only
        late = streams.session(addresses[0], source=SourceOptions(speed=0))  # added and removed while another runs
        with late.subscribe() as records, late:
            assert any(isinstance(record, LiveForecast) for record in records)
        assert late.status.state == "stopped"
    assert [session.status.state for session in sessions] == ["stopped"] * 2
    with ClusterSessions(cluster, model={"model": "/nowhere"}) as streams:
        with streams.session("a.ts") as session, session.subscribe() as records:
            last = list(records)[-1]
        assert "/nowhere" in str(session.error), last
    follow_file(file, cluster)
    print("all shown")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Follow two streams with two actors on one node; run by test_cluster.py in a process of its own.

python -m tests.server.streams.followers_on_cluster FILE NODES
"""

import os
import sys

from ballcast.live.status import LiveForecast, Status
from ballcast.video.sources import SourceOptions
from ballcast_server.streams.cluster import ClusterSessions
from tests.ray_nodes import Nodes
from tests.server.streams.streams_on_cluster import MODEL


def main(file: str, door: str) -> None:
    """Print that it was shown; an AssertionError where it was not."""
    with ClusterSessions(Nodes(door).have(1, cpus=2), model=MODEL, per_machine=2) as streams:
        sessions = [streams.session(file, source=SourceOptions(speed=0)) for _ in range(2)]
        listeners = [session.subscribe(capacity=4096) for session in sessions]
        for session in sessions:
            session.start()
        for listener in listeners:
            records = list(listener)
            print(*(r.message for r in records if isinstance(r, Status)), sep="\n", flush=True)
            assert [r.forecast.at_ms for r in records if isinstance(r, LiveForecast)] == [5000, 6000, 7000, 8000]
        actors = [follower._actor for follower in streams._followers]
        calls = [actor.__ray_call__.remote(lambda _: os.getpid()) for actor in actors]
        pids = streams._ray.get(calls, timeout=60)
        assert len(set(pids)) == 2, pids
        assert os.getpid() not in pids
        assert [session.follower for session in sessions] == streams._followers, "both went to one actor"
    print("all shown")


if __name__ == "__main__":
    main(*sys.argv[1:])

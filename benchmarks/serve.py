"""Many viewers of one stream: what they get, how long others wait meanwhile, what it costs.

    python -m benchmarks.serve ../shared/data/simbaa/match_010.mp4 --viewers 200 --seconds 12

The video is played in real time as a stream, with the frames and records of a real one; the network is left out, so
that what is measured is the server. Viewers and server are one process: the cost counts both.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np

from ballcast.core.actions import ACTIONS, FPS
from ballcast.core.events import Forecast, Prediction
from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from ballcast_server.web.server import bind, running
from ballcast_server.web.service import Service


class Quick:
    """Stands in for a StreamPredictor where numbers do not matter: no network, four predictions a second."""

    every_ms = 1000
    colour = False
    stride = 1

    def __init__(self) -> None:
        self.reset()

    def reset(self, begin_ms: int = 0, due_ms: int | None = None) -> None:
        self.frames, self.begin_ms = 0, begin_ms

    def begin_at(self, due_ms: int) -> int:
        return 0

    def push(self, frame: np.ndarray) -> Forecast | None:
        self.frames += 1
        seen = 1000 * self.frames // FPS
        now = self.begin_ms + seen
        if seen < 5000 or seen % 1000:
            return None
        rng = np.random.default_rng(now)
        chosen, ahead, sure = rng.choice(10, 4, replace=False), rng.integers(200, 4900, 4), rng.uniform(0.1, 0.8, 4)
        coming = zip(chosen.tolist(), ahead.tolist(), sure.tolist(), strict=True)
        return Forecast(now, tuple(Prediction(ACTIONS[i], now + t, c, (0.05,) * 10) for i, t, c in coming))


async def watch(port: int, until: float) -> Counter[str]:
    """How many records of each kind one viewer gets, and "bytes"."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"GET /api/streams/stream/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    got: Counter[str] = Counter()
    while time.monotonic() < until and (line := await reader.readline()):
        if line.startswith(b"data: "):
            record = json.loads(line[6:])
            got[record["type"]] += record.get("count", 1) if record["type"] == "lost" else 1
            got["bytes"] += len(line)
    writer.close()
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=12.0)
    given = parser.parse_args()
    listener = bind("127.0.0.1", 0)
    port, waits = listener.getsockname()[1], []
    with tempfile.TemporaryDirectory() as data:
        settings = Settings(data=Path(data), streams={"stream": str(given.video)})
        service = Service(settings, PredictorFactory(Quick))  # type: ignore[arg-type]
        with running(service, listener):
            until = time.monotonic() + given.seconds

            def request() -> None:
                while time.monotonic() < until:
                    began = time.perf_counter()
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health").read()
                    waits.append(1000 * (time.perf_counter() - began))
                    time.sleep(0.05)

            async def all_() -> list[Counter[str]]:
                return await asyncio.gather(*(watch(port, until) for _ in range(given.viewers)))

            requests = threading.Thread(target=request)
            requests.start()
            computed, began = time.process_time(), time.monotonic()
            got = asyncio.run(all_())
            took, computed = time.monotonic() - began, time.process_time() - computed
            requests.join()
            started = service.streams["stream"].started
    for kind in ("anticipation", "preview", "lost"):
        counts = [viewer[kind] for viewer in got]
        print(f"{kind:13} {min(counts)} to {max(counts)} a viewer")
    sent = sum(viewer["bytes"] for viewer in got)
    print(f"{given.viewers} viewers for {took:.1f} s: {sent / took / 1e6:.1f} MB/s, {started} computation(s)")
    print(f"{computed / took:.2f} cores, the viewers' own reading included")
    print(f"others answered in {np.median(waits):.0f} ms at the median, {max(waits):.0f} ms at most")


if __name__ == "__main__":
    main()

"""What the sandbox of the server's processes costs: the time to set it up, beside that of probing a small video.

python -m benchmarks.sandbox --times 20
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from ballcast_server.confined import decoder
from ballcast_server.confined.sandbox import missing
from ballcast_server.settings import Limits
from tests.video.conftest import make_video

SETUP = """
import json, sys, time
from pathlib import Path
import ballcast.video.pitch
from ballcast_server.confined.sandbox import confine
began = time.perf_counter()
confine(read=[Path(sys.argv[1])])
print(json.dumps(1000 * (time.perf_counter() - began)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    setups, probes = [], []
    with tempfile.TemporaryDirectory() as folder:
        video = make_video(Path(folder) / "a.mp4", range(50), size=(32, 64))
        for _ in range(times):
            done = subprocess.run([sys.executable, "-c", SETUP, str(video)], capture_output=True, check=True)
            setups.append(json.loads(done.stdout))
            began = time.perf_counter()
            decoder.probe(video, video.name, Limits())
            probes.append(1000 * (time.perf_counter() - began))
    console = Console(highlight=False)
    console.print(f"missing: {missing() or 'nothing'}")
    for name, found in (("confine", setups), ("probe of a video, process and all", probes)):
        console.print(f"{name}: median {statistics.median(found):.1f} ms, largest {max(found):.1f} ms of {times}")


if __name__ == "__main__":
    main()

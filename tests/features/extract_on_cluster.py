"""Extract on two nodes, one of which is killed while it works; run by test_extract.py in a process of its own.

python -m tests.features.extract_on_cluster VIDEOS STORE BACKBONE NODES
"""

import sys
from pathlib import Path

from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from tests.ray_nodes import Nodes


def main(videos: str, store: str, backbone: str, door: str) -> None:
    """Print when the node was killed, and the frames in all."""
    nodes = Nodes(door)
    address = nodes.have(2, cpus=1)
    killed = False

    def kill(done: int, total: int | None) -> None:
        nonlocal killed
        if done and not killed:
            nodes.kill()
            killed = True
            print(f"killed after {done} frames", flush=True)

    network = Backbone.from_pretrained(Path(backbone))
    report = extract(Path(videos), Path(store), network, device="cpu", cluster=address, progress=kill)
    print(f"{report.frames} frames")


if __name__ == "__main__":
    main(*sys.argv[1:])

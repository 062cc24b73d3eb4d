"""Extract on two nodes, one of which is killed while it works; run by test_extract.py in a process of its own.

python -m tests.features.extract_on_cluster VIDEOS STORE BACKBONE
"""

import sys
from pathlib import Path

from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from tests.ray_nodes import two_nodes


def main(videos: str, store: str, backbone: str) -> None:
    """Print when the node was killed, and the frames in all."""
    with two_nodes(cpus=1) as (cluster, nodes):

        def kill(done: int, total: int) -> None:
            if done and len(nodes) == 2:
                cluster.remove_node(nodes.pop(), allow_graceful=False)
                print(f"killed after {done} frames", flush=True)

        network = Backbone.from_pretrained(Path(backbone))
        report = extract(Path(videos), Path(store), network, device="cpu", cluster=cluster.address, progress=kill)
    print(f"{report.frames} frames")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`ballcast serve --cluster` with two nodes, one of which is killed; run by test_cluster.py in a process of its own.

python -m tests.server.web.serve_on_cluster FOLDER NODES ADDRESS ADDRESS
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from ballcast.core.actions import ACTIONS
from tests.ray_nodes import Nodes

WAIT_S = 180.0  # other tests share the two cores
ALL = dict.fromkeys(ACTIONS, 1e-6)  # every forecast raises alerts


def until(client: httpx.Client, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The streams by name once they are as wanted; the server must answer all the while."""
    end = time.monotonic() + WAIT_S
    said: dict[str, str] = {}
    while True:
        streams = {each["name"]: each for each in client.get("/api/streams", params={"details": True}).json()}
        for name, each in streams.items():
            if said.get(name) != each["message"]:
                said[name] = each["message"]
                print(name, each["state"], each["message"], flush=True)
        if wanted(streams):
            return streams
        assert time.monotonic() < end, f"not {what}: {streams}"
        time.sleep(0.1)


def preview(client: httpx.Client, name: str) -> bool:
    """Whether a picture of a stream comes to the page."""
    with client.stream("GET", f"/api/streams/{name}/events") as events:
        return any(line == "event: preview" for line in events.iter_lines())


def check(client: httpx.Client, addresses: list[str], kill: Callable[[], None]) -> None:
    """Streams are added, followed, go on when a node dies, and are removed."""
    for name, address in zip("ab", addresses, strict=True):
        settings = {"address": address, "alerts": ALL, "clips": name == "a"}
        assert client.put(f"/api/streams/{name}", json=settings).status_code == 200
    before = until(client, lambda s: all(s[n]["forecasts"] >= 2 for n in "ab"), "running")
    assert preview(client, "a")
    until(client, lambda _: bool(client.get("/api/streams/a/clips").json()), "clips kept")
    clip = client.get("/api/streams/a/clips").json()[0]["name"]
    assert client.get(f"/api/streams/a/clips/{clip}").content[4:8] == b"ftyp"
    kill()
    gone = until(client, lambda s: any("machine that followed it is gone" in s[n]["message"] for n in "ab"), "gone")
    (name,) = [n for n in "ab" if gone[n]["state"] == "reconnecting"]
    assert addresses[0].rpartition(":")[2] not in str(gone), "the address is shown"
    goal = gone[name]["forecasts"] + 2
    after = until(client, lambda s: s[name]["state"] == "running" and s[name]["forecasts"] >= goal, "on another")
    assert after[name]["reconnects"] >= 1
    other = "ab".replace(name, "")
    assert after[other]["forecasts"] > before[other]["forecasts"]
    metrics = client.get("/metrics").text
    assert "ballcast_scheduler_streams 2" in metrics
    assert f'ballcast_stream_reconnects_total{{stream="{name}"}} {after[name]["reconnects"]:g}' in metrics
    assert client.delete("/api/streams/b").status_code == 204
    until(client, lambda s: list(s) == ["a"] and "ballcast_scheduler_streams 1" in client.get("/metrics").text, "ended")


def main(folder: str, door: str, *addresses: str) -> None:
    """Print a line for each change; an AssertionError where something was not shown."""
    nodes = Nodes(door)
    cluster = nodes.have(2, cpus=2)
    options = ["--port", "0", "--no-token", "--any-video", "--runtime", "onnx", "--size", "own"]
    options += ["--allow-network", "127.0.0.0/8"]
    command = [sys.executable, "-m", "ballcast", "serve", *options, "--data", str(Path(folder) / "data")]
    server = subprocess.Popen([*command, "--cluster", cluster], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    found = re.search(r"http://[\d.:]+", server.stdout.readline())
    assert found, server.wait()
    with httpx.Client(base_url=found.group(), timeout=20) as client:
        check(client, list(addresses), nodes.kill)
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    print("all shown")


if __name__ == "__main__":
    main(*sys.argv[1:])

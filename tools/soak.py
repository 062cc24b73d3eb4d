"""Hours of an operations room in minutes: streams cut, added and removed, a webhook's receiver down, the disk filling.

    python -m tools.soak --minutes 30 --streams 8 --out soak.json

Runs `ballcast serve` with a tiny network as its own process, feeds it live streams over TCP, and plays the operator
over REST. Half of the streams are left alone, the others are cut, changed, removed and added again. Then it checks
what the server promises: every alert arrived once, streams that were left alone missed nothing, files are whole, memory
is flat. Exit code 1 if not. As root on Linux the data folder is a small file system of its own, which is filled.
"""

import argparse
import json
import os
import random
import re
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.model.anticipator import Anticipator

SIZE = (48, 80)
DISK_MIB = 420  # of the file system that is filled; clips leave 256 of them free
SETTLED = 0.2  # share of the time after which memory has to be flat


def save_networks(folder: Path) -> None:
    """A model of a few thousand weights whose every slot is a prediction."""
    torch.manual_seed(0)
    config = BackboneConfig(
        encoder="test_efficientnet", step=8, stride=24, channels=8, blocks=1, projected=4, se_ratio=4
    )
    backbone = Backbone(config).eval()
    sizes = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=32, decoder_heads=2, decoder_ffn=32, decoder_layers=1)
    about = {"backbone": {"hash": backbone.hash, "name": backbone.name}, "picture_size": list(SIZE)}
    model = ModelConfig(clips=snippet_count(config), width=config.width, hierarchy=sizes)
    backbone.save_pretrained(folder / "backbone")
    Anticipator(model, emit=EmitConfig(threshold=0.0), metadata=about).eval().save_pretrained(folder / "model")


class Camera:
    """tcp://…: an endless live stream, 25 pictures a second; each connection gets it from its start, `cut` ends all."""

    def __init__(self, seed: int) -> None:
        self.packets = _packets(seed)
        self.generation = 0
        self.over = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, av.FFmpegError, ValueError):
                    outer._send(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"tcp://127.0.0.1:{self._server.server_address[1]}"

    def cut(self) -> None:
        self.generation += 1

    def _send(self, connection: Any) -> None:
        generation, template, packets = self.generation, *self.packets
        out_file = connection.makefile("wb")

        class Pipe:
            def write(self, data: bytes) -> int:
                out_file.write(bytes(data))
                out_file.flush()
                return len(data)

        began, n = time.monotonic(), 0
        with av.open(Pipe(), "w", format="mpegts") as out:
            stream = out.add_stream_from_template(template)
            while generation == self.generation and not self.over.wait(max(0.0, began + n / 25 - time.monotonic())):
                content, key = packets[n % len(packets)]
                packet = av.Packet(content)
                packet.pts = packet.dts = n
                packet.time_base, packet.stream, packet.is_keyframe = Fraction(1, 25), stream, key
                out.mux(packet)
                n += 1


def _packets(seed: int) -> tuple[Any, list[tuple[bytes, bool]]]:
    """Ten seconds of noise that changes slowly, without B-frames, to be sent again and again."""
    rng = np.random.default_rng(seed)
    kept = av.open(tempfile.mkstemp(suffix=".ts")[1], "w")
    stream = kept.add_stream("libx264", rate=25, options={"bf": "0", "g": "50", "preset": "ultrafast"})
    stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
    packets = []
    small = rng.integers(0, 256, (50, 6, 10), dtype=np.uint8)
    for n in range(250):
        picture = np.kron(small[n // 5], np.ones((8, 8), np.uint8))
        for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="gray").reformat(format="yuv420p")):
            packets.append((bytes(packet), packet.is_keyframe))
    packets += [(bytes(packet), packet.is_keyframe) for packet in stream.encode()]
    return stream, packets


class Receiver:
    """A webhook's: counts messages by id; while `down`, it answers 503."""

    def __init__(self) -> None:
        self.ids: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        self.down = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not outer.down:
                    message = json.loads(body)
                    outer.ids[message["id"]] += 1
                    outer.streams[message["stream"]] += 1
                self.send_response(503 if outer.down else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_address[1]}/"


class Room:
    """The operator: the server's process, and requests to it."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        command = [
            sys.executable,
            "-m",
            "ballcast",
            "serve",
            "--no-token",
            "--port",
            "0",
            "--log-format",
            "json",
            "--any-video",
            "--allow-network",
            "127.0.0.0/8",
        ]
        command += ["--model", str(folder / "model"), "--backbone", str(folder / "backbone"), "--device", "cpu"]
        command += ["--data", str(folder / "data"), "--webhook", receiver.address, "--cooldown", "20"]
        self.log = (folder / "server.log").open("w")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                break
        else:
            raise SystemExit(f"the server did not start; see {self.log.name}")
        for _ in range(100):  # it listens just after it has printed its address
            with suppress(urllib.error.URLError):
                if self.ask("GET", "/healthz")[0] == 200:
                    break
            time.sleep(0.1)

    def ask(self, method: str, path: str, tree: Any = None) -> tuple[int, Any]:
        body = None if tree is None else json.dumps(tree).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text[:1] in (b"[", b"{") else text.decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def streams(self) -> dict[str, dict[str, Any]]:
        return {s["name"]: s for s in self.ask("GET", "/api/streams?details=true")[1]}

    def metrics(self) -> dict[str, float]:
        lines = self.ask("GET", "/metrics")[1].splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def put(self, name: str, camera: Camera) -> int:
        alerts = dict.fromkeys(ACTIONS, 0.001)
        tree = {"address": camera.address, "alerts": alerts, "clips": True}
        return self.ask("PUT", f"/api/streams/{name}", tree)[0]

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def mounted(folder: Path) -> bool:
    """Give the data folder a small file system, where that is allowed."""
    data = folder / "data"
    data.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(data)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


def disturb(room: Room, cameras: dict[str, Camera], receiver: Receiver, data: Path, disk: bool, seconds: float) -> dict:
    """Play the operator for so long; returns what was done and seen."""
    names, began, done = sorted(cameras), time.monotonic(), Counter()
    wild, sizes = names[len(names) // 2 :], []
    rng, fill = random.Random(0), data / "filled"
    while (passed := time.monotonic() - began) < seconds:
        receiver.down = 0.2 < passed / seconds % 0.5 / 0.5 < 0.5
        name = rng.choice(wild)
        act = rng.choice(["cut", "remove", "change", "add", "nothing"])
        if act == "cut":
            cameras[name].cut()
        elif act == "remove" and name in room.streams():
            done[f"remove {room.ask('DELETE', f'/api/streams/{name}')[0]}"] += 1
        elif act in ("add", "change"):
            done[f"put {room.put(name, cameras[name])}"] += 1
        done[act] += 1
        if disk:  # full in the third and fourth of six parts, in the third nearly
            part = int(6 * passed / seconds)
            free_mib = os.statvfs(data).f_bavail * os.statvfs(data).f_frsize / (1 << 20)
            if part in (2, 3):
                leave = 150 if part == 2 else 0
                with suppress(OSError), fill.open("ab") as file:
                    file.write(b"\0" * max(0, int((free_mib - leave) * (1 << 20))))
                    file.flush()
                done["filled"] += 1
            elif fill.exists():
                fill.unlink()
        if room.process.poll() is not None:
            raise SystemExit(f"the server ended with {room.process.returncode}; see {room.log.name}")
        sizes.append((passed, room.rss_mb()))
        time.sleep(min(5.0, seconds / 60))
    fill.unlink(missing_ok=True)
    receiver.down = False
    return {"done": dict(done), "rss_mb": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    save_networks(folder)
    disk = mounted(folder)
    receiver = Receiver()
    cameras = {f"stream-{n}": Camera(n) for n in range(args.streams)}
    room = Room(folder, receiver)
    try:
        for name, camera in cameras.items():
            assert room.put(name, camera) == 200
        calm = sorted(cameras)[: len(cameras) // 2]
        end = time.monotonic() + 120
        while time.monotonic() < end and not all(room.streams()[name]["forecasts"] for name in calm):
            time.sleep(1)
        first, began = room.streams(), time.monotonic()
        seen = disturb(room, cameras, receiver, folder / "data", disk, 60 * args.minutes)
        last, took = room.streams(), time.monotonic() - began
        end = time.monotonic() + 150  # a message may wait a minute for its next attempt
        while time.monotonic() < end and room.metrics()['ballcast_alerts_waiting{target="webhook"}']:
            time.sleep(1)
        for name in list(room.streams()):
            room.ask("DELETE", f"/api/streams/{name}")
        time.sleep(2)
        result = judge(room.metrics(), receiver, seen, {n: (first[n], last[n]) for n in calm}, took, folder, disk)
    finally:
        room.process.terminate()
        room.process.wait(30)
        if disk:
            subprocess.run(["umount", str(folder / "data")])
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if args.out:
        args.out.write_text(json.dumps(result | {"rss_mb": seen["rss_mb"]}, indent=1))
    sys.exit(0 if all(result["promises"].values()) else 1)


def judge(
    metrics: dict[str, float], receiver: Receiver, seen: dict, calm: dict, took: float, folder: Path, disk: bool
) -> dict[str, Any]:
    """The figures, and which promises were kept."""
    target = '{target="webhook"}'
    raised, delivered = metrics["ballcast_alerts_total"], metrics[f"ballcast_alerts_delivered_total{target}"]
    clips = list((folder / "data" / "clips").rglob("*.mp4"))
    whole = 0
    for clip in clips:  # a stream that was cut or changed has short ones, but every packet gives a picture
        with av.open(str(clip)) as opened:
            packets = sum(1 for packet in opened.demux(video=0) if packet.size)
        with av.open(str(clip)) as opened:
            whole += 0 < packets == sum(1 for _ in opened.decode(video=0))
    settled = [size for passed, size in seen["rss_mb"] if passed > SETTLED * took]
    half = len(settled) // 2
    early, late = statistics.median(settled[:half]), statistics.median(settled[half:])
    made = {n: (b["forecasts"] - a["forecasts"]) / took for n, (a, b) in calm.items()}
    lost = {
        n: b["dropped"] + b["gaps"] + b["reconnects"] - a["dropped"] - a["gaps"] - a["reconnects"]
        for n, (a, b) in calm.items()
    }
    stored = json.loads((folder / "data" / "streams.json").read_text())
    return {
        "seconds": round(took),
        "disk_filled": disk,
        "done": seen["done"],
        "alerts": {"raised": raised, "delivered": delivered, "received": len(receiver.ids),
                   "failed_attempts": metrics[f"ballcast_alerts_failed_total{target}"]},
        "clips": {"kept": metrics["ballcast_clips_written_total"], "not_kept": metrics["ballcast_clips_failed_total"],
                  "removed": metrics["ballcast_clips_removed_total"], "left": len(clips)},
        "forecasts_a_second": made,
        "lost": lost,
        "rss_mb": {"early": round(early, 1), "late": round(late, 1), "most": round(max(settled), 1)},
        "promises": {
            "every alert arrived": raised == delivered == len(receiver.ids),
            "and once": max(receiver.ids.values(), default=1) == 1,
            "streams left alone lost nothing": not any(lost.values()),
            "and were forecast every second": all(rate > 0.97 for rate in made.values()),
            "every clip is whole": whole == len(clips),
            "a full disk was survived": not disk or metrics["ballcast_clips_written_total"] > 0,
            "streams are stored": stored == [],
            "memory is flat": late < 1.05 * early,
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()

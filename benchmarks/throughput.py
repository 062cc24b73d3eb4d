"""The rates that `ballcast reproduce --recipes` computes hours from, measured on this machine.

    python -m benchmarks.throughput --out throughput.json           # on a GPU
    python -m benchmarks.throughput --out throughput.json --try     # a moment of each, in small, on any machine

It writes after each rate, and goes on where it stopped. Frames are noise, or of a drawn video, which is easier to
decode than a broadcast. Training end to end is measured twice, with all of the GPU's memory and with 22.5 GiB of it: so
the settings fit a card of 24 GB; that card's own speed is not known by it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ballcast.core.actions import CLIP_FRAMES, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import load
from ballcast.core.files import write_json
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.core.util import cores
from ballcast.data.labels.games import Game, VideoSegment
from ballcast.data.samples.frames import FrameCache
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.extract_workers import choose_decoders
from ballcast.features.videos import Piece, Source
from ballcast.training.loop import RunContext, train_one_epoch
from ballcast.training.pretrain import PretrainTask
from ballcast.workflows.reproduce.job import stacks_a_step
from benchmarks.end_to_end import measure_step
from benchmarks.extract import draw, measure

SMALL_CARD = 22.5  # GiB of a card of 24 GB that a training may take; the driver and the screen have the rest
SMALL_SETTINGS = {"e2e": ["train.batch=6"], "faantra-ws": ["train.batch=4", "encoder.recompute=true"]}
SIZES = {"224p": (224, 398), "720p": (720, 1280), "448p": (448, 796)}
TINY = {"224p": (64, 96), "720p": (128, 192), "448p": (96, 144)}  # of --try


class Machine:
    """Where rates are measured, and with frames of which sizes; `tiny`: in small, for a moment."""

    def __init__(self, folder: Path, *, tiny: bool) -> None:
        self.folder, self.tiny = folder, tiny
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.sizes = TINY if tiny else SIZES
        self.frames = 2 * WINDOW_FRAMES if tiny else CLIP_FRAMES

    def video(self, lines: str) -> Path:
        path = self.folder / f"{lines}.mp4"
        return path if path.exists() else draw(path, self.sizes[lines], self.frames)

    def decode(self, lines: str, to: str = "", *, colour: bool = False) -> dict[str, Any]:
        """Frames a second from files into memory, scaled `to` other lines."""
        copies = 2 if self.tiny else 4 * cores()
        games = [Game(f"{i}", "train", (VideoSegment(self.video(lines), 0, self.frames),), ()) for i in range(copies)]
        began = time.perf_counter()
        bank = FrameCache(games, torch.device("cpu"), "memory", lines=self.sizes[to][0] if to else 0, colour=colour)
        return {"rate": bank.total / (time.perf_counter() - began), "cores": cores()}

    def pretrain(self) -> dict[str, Any]:
        """Stacks a second of pre-training's steps on drawn matches."""
        source = self.folder / "matches"
        source.mkdir(exist_ok=True)
        actions = [
            {"label": "PASS", "position": 2000 * i, "team": "home", "visibility": "visible"}
            for i in range(1, self.frames // 60)
        ]
        matches = []
        for i in range(2):
            video = draw(source / f"match_{i:03d}.mp4", self.sizes["224p"], self.frames)
            matches.append({"video": video.name, "split": "train", "frames": self.frames, "actions": actions})
        write_json(source / "matches.json", matches)
        steps = 4 if self.tiny else 60
        small = ["clips.batch=2", "backbone.blocks=1"] if self.tiny else []
        changes = [f"data.sources=[{source}]", "data.valid=[]", "train.start=scratch", f"train.steps={steps}", *small]
        config = load(PretrainRecipe, Path("pretrain"), changes)
        task = PretrainTask(config, RunContext(self.folder / "pretraining", self.device))
        task.prepare(0)
        warm, times = steps // 2, []
        for number, _ in enumerate(train_one_epoch(task, 0), start=1):
            if number in (warm, steps):
                self._wait()
                times.append(time.perf_counter())
        return {"rate": (steps - warm) * stacks_a_step(config) / (times[1] - times[0]), "gib": self._memory()}

    def train(self, name: str, lines: str, *changes: str, limit: float | None = None) -> dict[str, Any]:
        """Stacks a second of a recipe's steps; `limit`: GiB of the GPU's memory that they may take."""
        small = ["train.batch=1", "encoder.network.encoder=test_efficientnet"] if self.tiny else []
        recipe = load(Recipe, Path(name), ["encoder.start=scratch", *changes, *small])
        if limit is not None and self.device.type == "cuda":
            whole = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(limit * 2**30 / whole)
        try:
            row = measure_step(recipe, *self.sizes[lines], self.device, 2 if self.tiny else 14)
        finally:
            if self.device.type == "cuda":
                torch.cuda.set_per_process_memory_fraction(1.0)
                torch.cuda.empty_cache()
        settings = [f"train.batch={recipe.train.batch}", f"encoder.recompute={recipe.encoder.recompute}".lower()]
        return {"rate": row.pop("stacks_per_s"), **row, "settings": settings}

    def extract(self, network: BackboneConfig, lines: str, to: str = "") -> dict[str, Any]:
        """Seconds of video a second, from files to features of windows 5 s apart."""
        if self.tiny and not network.blocks:
            network = replace(network, encoder="test_efficientnet")
        engine = BatchEncoder(Backbone(network).eval().to(self.device))
        size, path = self.sizes[to or lines], self.video(lines)
        source = Source("clip", path, path.name, self.frames, 0, 0)
        windows = self.frames // WINDOW_FRAMES
        count = 2 if self.tiny else 96
        pieces = [
            Piece(source, i, 0, windows, WINDOW_FRAMES, size if to else None, colour=network.colour)
            for i in range(count)
        ]
        if self.device.type == "cuda":
            rows = size[0] * 3 // 2 if network.colour else size[0]
            noise = torch.randint(0, 256, (WINDOW_FRAMES, rows, size[1]), dtype=torch.uint8)
            for _ in range(3):
                engine.windows(noise, [0])  # compiled and recorded, outside the clock
        on_gpu = self.device.type == "cuda"
        devices = choose_decoders(pieces[0], "auto", cores()).devices("cuda") if on_gpu else ["cpu"]
        row = measure(engine, pieces, devices, self.frames)
        return {"rate": row.pop("times_real_time"), **row, "gib": self._memory()}

    def _memory(self) -> float:
        """GiB that torch has taken of the GPU since the last rate; of a CPU, 0."""
        return torch.cuda.max_memory_reserved() / 2**30 if self.device.type == "cuda" else 0.0

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def rates(machine: Machine) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, by name, in the order of need."""
    e2e, winner = (load(Recipe, Path(name)).encoder.network for name in ("e2e", "faantra-ws"))
    return {
        "train faantra-ws": lambda: machine.train("faantra-ws", "448p"),
        "train faantra-ws, 24 GB": lambda: machine.train(
            "faantra-ws", "448p", *SMALL_SETTINGS["faantra-ws"], limit=SMALL_CARD
        ),
        "train e2e": lambda: machine.train("e2e", "224p"),
        "train e2e, 24 GB": lambda: machine.train("e2e", "224p", *SMALL_SETTINGS["e2e"], limit=SMALL_CARD),
        "train e2e head": lambda: machine.train(
            "e2e-head", "224p", f"encoder.features={machine.folder / 'features'}", limit=SMALL_CARD
        ),
        "decode 224p": lambda: machine.decode("224p"),
        "decode 720p": lambda: machine.decode("720p", "448p", colour=True),
        "pretrain 224p": machine.pretrain,
        "extract 224p": lambda: machine.extract(BackboneConfig(), "224p"),
        "extract e2e": lambda: machine.extract(e2e, "224p"),
        "extract faantra-ws": lambda: machine.extract(winner, "720p", "448p"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="these rates")
    parser.add_argument("--try", dest="tiny", action="store_true", help="in small, for a moment: to see that it runs")
    args = parser.parse_args()
    done: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in rates(Machine(Path(folder), tiny=args.tiny)).items():
            if done.get(name, {}).get("tiny") is args.tiny or (args.only and name not in args.only):
                continue
            began = time.perf_counter()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            try:
                done[name] = {**work(), "tiny": args.tiny}
            except Exception as error:  # one that fails must not hide the others; it is tried again by the next run
                print(f"{name}: failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            print(f"{name}: {json.dumps(done[name])}, after {time.perf_counter() - began:.0f} s", flush=True)
            write_json(args.out, done, indent=1)


if __name__ == "__main__":
    main()

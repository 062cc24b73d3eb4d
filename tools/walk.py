"""Lists the files of ballcast that a reader of each job has to open, by tracing the job's calls.

    python -m tools.walk                      # a count per job
    python -m tools.walk --files              # and the files
    python -m tools.walk "predict VIDEO"      # of one job

A file counts when a function in it is called; what runs only while a module is imported does not. The jobs are small
(random weights, noise as video and features) and take a minute on a CPU; `predict VIDEO` and `stream to the page` (the
server, a stream of the network, a viewer) are the commands with their embedded models, as a user runs them.
"""

import argparse
import contextlib
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import av
import numpy as np
import torch

import ballcast
from ballcast import cli
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig, Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import load
from ballcast.core.events import merge_bins
from ballcast.data.labels.soccernet import read_labels
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore
from ballcast.inference.store_predictor import by_clip
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.session import LiveSession
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.training.run import train
from ballcast.video.sources import FileSource
from tests.synthetic import SMALL, make_split

SOURCE = Path(ballcast.__file__).parents[1]
PACKAGES = (f"{SOURCE}{os.sep}ballcast{os.sep}", f"{SOURCE}{os.sep}ballcast_server{os.sep}")
CPU = torch.device("cpu")
BACKBONE = BackboneConfig(encoder="test_efficientnet", step=2, stride=6, channels=8, blocks=1, projected=4, se_ratio=4)
HIERARCHY = HierarchyConfig(
    dim=16, encoder_heads=2, encoder_ffn=32, steps=1, decoder_heads=2, decoder_ffn=32, decoder_layers=1
)


def trace(job: Callable[[], object]) -> list[str]:
    """Run the job; return the files of the packages in which a function was called, in any thread."""
    entered: set[str] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path not in entered and path.startswith(PACKAGES) and not being_imported(frame):
            entered.add(path)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(str(Path(path).relative_to(SOURCE)) for path in entered)


def being_imported(frame: FrameType | None) -> bool:
    """Whether a module of ours is being imported: the frame is its body, a class in it, or was called by one."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGES):
            return True
        frame = frame.f_back
    return False


def make_video(path: Path, seconds: int) -> Path:
    """Write noise of 64×48 pixels at 25 fps."""
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(25 * seconds):
            image = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(stream.encode())
    return path


def random_model() -> Anticipator:
    config = ModelConfig(clips=snippet_count(BACKBONE), width=BACKBONE.width, hierarchy=HIERARCHY)
    return Anticipator(config).eval()


def random_backbone() -> Backbone:
    return Backbone(BACKBONE).eval()


def forward_pass(folder: Path) -> list[str]:
    model = random_model()
    windows = torch.zeros(2, 6, snippet_count(BACKBONE), BACKBONE.width)
    return trace(lambda: model(windows))


def video_to_store(folder: Path) -> list[str]:
    video = make_video(folder / "video.mp4", 32)
    backbone = random_backbone()
    return trace(lambda: extract(video, folder / "store", backbone, device="cpu"))


def training_epoch(folder: Path) -> list[str]:
    recipe = _small_recipe(folder)
    return trace(lambda: train(recipe, folder / "run", device=CPU))


def store_to_score(folder: Path) -> list[str]:
    train(_small_recipe(folder), folder / "run", device=CPU)

    def score_store() -> None:
        trained = ballcast.load(folder / "run" / "best", device="cpu")
        store = FeatureStore.open(folder / "features" / "valid")
        clips = read_labels(folder / "features" / "valid")
        predictions = by_clip(trained.features(store, clips=clips))
        score(clips, {name: merge_bins(found) for name, found in predictions.items()})

    return trace(score_store)


def predict_video(folder: Path) -> list[str]:
    video = make_video(folder / "match.mp4", 7)
    return trace(lambda: run_command("predict", str(video), "--any-video", "--out", str(folder / "match.json")))


def live_session(folder: Path) -> list[str]:
    video = make_video(folder / "video.mp4", 32)
    model = random_model()
    backbone = random_backbone()

    def follow() -> None:
        predictor = StreamPredictor(TorchRuntime(model, backbone), every_ms=1000)
        session = LiveSession(FileSource(video, speed=0), predictor)
        with session.subscribe(capacity=10_000) as records, session:
            list(records)

    return trace(follow)


def stream_to_page(folder: Path) -> list[str]:
    """`ballcast serve`, until a viewer has got a forecast along a stream; then Ctrl-C."""
    stream = make_video(folder / "pitch.ts", 9).read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as camera, socket.create_server(("127.0.0.1", 0)) as free:
        address, port = f"tcp://127.0.0.1:{camera.getsockname()[1]}", free.getsockname()[1]
        free.close()
        threading.Thread(target=send_slowly, args=(camera, stream), daemon=True).start()
        threading.Thread(target=watch_stream, args=(port,), daemon=True).start()
        options = ["--no-token", "--any-video", "--runtime", "onnx", "--data", str(folder / "data")]
        command = ["serve", "--port", str(port), "--stream", f"pitch={address}", *options]
        return trace(lambda: run_command(*command))


def send_slowly(camera: socket.socket, stream: bytes) -> None:
    """Send a video of 9 s to the first client, at about its own pace."""
    connection, _ = camera.accept()
    with connection:
        for begin in range(0, len(stream), len(stream) // 90):
            connection.sendall(stream[begin : begin + len(stream) // 90])
            time.sleep(0.1)


def watch_stream(port: int) -> None:
    """Open the page's files and follow the stream until its first forecast; then stop this process as Ctrl-C does."""
    page = f"http://127.0.0.1:{port}"
    for _ in range(600):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(page).close()
            break
        time.sleep(0.1)
    with urllib.request.urlopen(f"{page}/api/streams/pitch/events") as events:
        for line in events:
            if line.startswith(b"event: anticipation"):
                break
    os.kill(os.getpid(), signal.SIGINT)


def run_command(*arguments: str) -> None:
    """Run `ballcast ARGUMENTS` in this process; what it prints is shown only if it fails."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            cli.main(arguments)
    except SystemExit as ended:
        if ended.code:
            raise SystemExit(f"ballcast {' '.join(arguments)}: {printed.getvalue()}") from None


def _small_recipe(folder: Path) -> Recipe:
    """Write small splits of features unless they exist; return the recipe of a run of one epoch on them."""
    for seed, split in enumerate(("train", "valid")):
        if not (folder / "features" / split).exists():
            make_split(folder / "features" / split, 12, seed)
    return load(Recipe, None, [*SMALL, f"data.features={folder / 'features'}", "data.stitch=false", "train.epochs=1"])


# Each writes what it needs into a folder, and returns the files that the job entered.
JOBS: dict[str, Callable[[Path], list[str]]] = {
    "forward pass": forward_pass,
    "mp4 to store": video_to_store,
    "store to score": store_to_score,
    "training epoch": training_epoch,
    "predict VIDEO": predict_video,
    "live session": live_session,
    "stream to the page": stream_to_page,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}; all of them by default")
    parser.add_argument("--files", action="store_true", help="list the files")
    args = parser.parse_args()
    if unknown := set(args.jobs) - set(JOBS):
        parser.error(f"no job {', '.join(sorted(unknown))}; choose from {', '.join(JOBS)}")
    torch.set_num_threads(1)
    for name in args.jobs or JOBS:
        with tempfile.TemporaryDirectory() as folder:
            files = JOBS[name](Path(folder))
        lines = sum(len((SOURCE / file).read_text().splitlines()) for file in files)
        print(f"{name}: {len(files)} files, {lines} lines")  # noqa: T201
        if args.files:
            print("  " + "\n  ".join(files))  # noqa: T201


if __name__ == "__main__":
    main()

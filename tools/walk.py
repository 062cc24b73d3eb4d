"""Counts the files of ballcast that a reader of each job has to open, by tracing the job's calls.

    python -m tools.walk            # a count per job
    python -m tools.walk --files    # and the files

A file counts when a function in it is called; what runs only while a module is imported does not. The jobs are small
(random weights, made-up video and features) and take half a minute on a CPU.
"""

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import av
import numpy as np
import torch

import ballcast
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig, Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import load
from ballcast.core.events import merge_bins
from ballcast.data.labels.soccernet import read_labels
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore
from ballcast.inference.predictor import predict_store
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.live.session import LiveSession
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.training.run import train
from ballcast.video.sources import FileSource
from tests.synthetic import SMALL, make_split

PACKAGE = str(Path(ballcast.__file__).parent)
LIMITS = {"forward pass": 5, "mp4 to store": 18, "store to score": 20, "training epoch": 25, "live session": 30}
CPU = torch.device("cpu")


def trace(job: Callable[[], object]) -> list[str]:
    """Run the job; return the files of the package in which a function was called, in any thread."""
    entered: set[str] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(PACKAGE):
            entered.add(code.co_filename[len(PACKAGE) + 1 :])

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        job()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(entered)


def make_video(path: Path, seconds: int) -> None:
    """Write noise of 64×48 pixels at 25 fps."""
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(25 * seconds):
            image = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(stream.encode())


def walk(folder: Path) -> dict[str, list[str]]:
    """The files entered by each job; what the jobs need is made in `folder`."""
    torch.set_num_threads(1)
    video = folder / "video.mp4"
    make_video(video, 32)
    config = BackboneConfig(
        encoder="test_efficientnet", step=2, stride=6, channels=8, blocks=1, projected=4, se_ratio=4
    )
    sizes = HierarchyConfig(
        dim=16, encoder_heads=2, encoder_ffn=32, steps=1, decoder_heads=2, decoder_ffn=32, decoder_layers=1
    )
    backbone = Backbone(config).eval()
    model = Anticipator(ModelConfig(clips=snippet_count(config), width=config.width, hierarchy=sizes)).eval()
    windows = torch.zeros(2, 6, snippet_count(config), config.width)
    for seed, split in enumerate(("train", "valid")):
        make_split(folder / "features" / split, 12, seed)
    recipe = load(Recipe, None, [*SMALL, f"data.features={folder / 'features'}", "data.stitch=false", "train.epochs=1"])

    def score_store() -> None:
        trained = Anticipator.from_pretrained(folder / "run" / "best")
        store, clips = FeatureStore.open(folder / "features" / "valid"), read_labels(folder / "features" / "valid")
        predictions = predict_store(trained, store, clips, trained.emit, CPU)
        score(clips, {name: merge_bins(found) for name, found in predictions.items()})

    def follow() -> None:
        predictor = StreamPredictor(TorchRuntime(model, backbone), every_ms=1000)
        session = LiveSession(FileSource(video, speed=0), predictor)
        with session.subscribe(capacity=10_000) as records, session:
            list(records)

    return {
        "forward pass": trace(lambda: model(windows)),
        "mp4 to store": trace(lambda: extract(video, folder / "store", backbone, device="cpu")),
        "training epoch": trace(lambda: train(recipe, folder / "run", device=CPU)),
        "store to score": trace(score_store),
        "live session": trace(follow),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="list the files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = walk(Path(folder))
    for job, limit in LIMITS.items():
        print(f"{job}: {len(found[job])} files (at most {limit})")  # noqa: T201
        if args.files:
            print("  " + "\n  ".join(found[job]))  # noqa: T201


if __name__ == "__main__":
    main()

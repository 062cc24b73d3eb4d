"""`ballcast demo`: from pixels to a report on embedded data, on any machine, without torch.

An excerpt of a simulated match that was not used in training goes through all steps: features, predictions, the
official score, a submission, a report. `demo_training.py` adds a minute of training.
"""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ballcast.api import Model, load
from ballcast.core.actions import FPS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Prediction, merge_bins
from ballcast.core.files import write_bytes
from ballcast.core.hub import SAMPLES
from ballcast.core.util import print_table
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.windows import STEP_MS
from ballcast.features.stream_encoder import Floats
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.rolling import clip_features, slots_along
from ballcast.inference.runtime import Runtime
from ballcast.inference.submission import check_submission, write_submission
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import bootstrap
from ballcast.model.postprocess import SlotArrays, emit
from ballcast.report.film_strip import Footage
from ballcast.report.report import Report, write_report
from ballcast.report.terminal import score_table
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer
from ballcast.video.queues import Prefetcher

EXCERPT = "excerpt"
NAME = "embedded model, from pixels"


def run(out: Path, console: Console, *, device: str = "auto", samples: Path = SAMPLES) -> Path:
    """Run the demo.

    Args:
        out: folder for features, a submission and a report.
        console: to print on.
        device: to compute on; see `load`.
        samples: the embedded data.

    Returns:
        The report's path.
    """
    video = samples / "test" / f"{EXCERPT}.mp4"
    if not video.exists():
        raise InputError(f"{samples}: the embedded data are missing; reinstall ballcast")
    clips = read_labels(samples / "test")
    console.print(
        f"[bold]1  Extract features[/] of an excerpt of a simulated match (Google Research Football; see NOTICE): "
        f"{len(clips)} clips of 30 s, one every 5 s"
    )
    model = load(samples / "anticipator", backbone=samples / "backbone", device=device)
    runtime = model.new_runtime()
    features = _features(out / "features", console, runtime, video)
    console.print("[bold]2  Anticipate[/] the 5 s after each clip with the embedded model")
    slots = slots_along(runtime, features, model.windows.config.windows).first(len(clips))
    return _report(out, console, model, clips, slots, samples)


def _features(folder: Path, console: Console, runtime: Runtime, video: Path) -> Floats:
    """The features (n, D) of all snippets of the video, computed once and kept in `folder`."""
    kept = folder / f"{video.stem}-{runtime.about['backbone']['hash'][:12]}.npy"
    if kept.is_file():
        return np.load(kept)
    with VideoFile(video) as file, Prefetcher(file.frames()) as frames, _bar(console, "pixels to features") as bar:
        task, fit = bar.add_task("", total=file.frame_count()), FrameResizer(runtime.picture_size)

        def fitted() -> Iterator[np.ndarray]:
            for frame in frames:
                yield fit(frame)
                bar.advance(task)

        features = clip_features(runtime, fitted())
        seconds, done = bar.tasks[task].elapsed or 0.0, bar.tasks[task].completed
    content = BytesIO()
    np.save(content, features)
    write_bytes(kept, content.getvalue())
    console.print(f"   {done:.0f} frames in {seconds:.0f} s, {done / FPS / max(seconds, 0.001):.1f} × real time")
    return features


def _report(out: Path, console: Console, model: Model, clips: list[Clip], slots: SlotArrays, samples: Path) -> Path:
    """Score the predictions beside two systems that see no video, and write a submission and the report."""
    own, weight = model.emit, model.windows.pos_weight
    predicted = {name: merge_bins(entries) for name, entries in _named(clips, emit(slots, own)).items()}
    # For people: only the labels that are emitted, with calibrated probabilities.
    shown = _named(clips, emit(slots, replace(own.shown, vector="emitted"), pos_weight=weight))
    past = read_labels(samples / "train")
    systems: dict[str, ClassPrior | Markov] = {
        "Markov, given the true past": Markov(past),
        "class prior": ClassPrior(past),
    }
    result = score(clips, predicted)
    others = {name: score(clips, {clip.name: one.predict(clip) for clip in clips}) for name, one in systems.items()}
    print_table(console, score_table({NAME: result, **others}))
    submission = out / "results_anticipation.zip"
    write_submission(submission, predicted)
    defects = check_submission(submission, clips)
    message = f"   a submission for the challenge's server: {submission}, {len(defects)} defects"
    console.print(message, markup=False, soft_wrap=True)
    video = samples / "test" / f"{EXCERPT}.mp4"
    report = Report(
        "ballcast on a match not used in training",
        clips,
        predicted,
        result,
        name=NAME,
        shown=shown,
        intervals=bootstrap(clips, predicted),
        others=others,
        footage={clip.name: Footage(video, STEP_MS * i) for i, clip in enumerate(clips)},
        facts={
            "data": f"an excerpt of a simulated match, {len(clips)} clips: too few for a measurement",
            "model": f"trained on other matches; run by {'ONNX Runtime' if model.runtime == 'onnx' else 'torch'}",
            "features of": str(model.windows.metadata.get("backbone", {}).get("name", "")),
        },
    )
    path = out / "report.html"
    with _bar(console, "film strips") as bar:
        task = bar.add_task("", total=None)
        write_report(path, report, lambda done, total: bar.update(task, completed=done, total=total))
    console.print(f"\n[bold]Report:[/] {escape(str(path))}", soft_wrap=True)
    return path


def _named(clips: list[Clip], predictions: list[list[Prediction]]) -> dict[str, list[Prediction]]:
    return {clip.name: entries for clip, entries in zip(clips, predictions, strict=True)}


def _bar(console: Console, what: str) -> Progress:
    columns = (TextColumn(f"   {what}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

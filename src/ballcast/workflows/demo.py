"""`ballcast demo`: from pixels to a report on embedded data, on any machine, without torch.

An excerpt of a simulated match that was not used in training goes through all steps: features, predictions, the
official score, a submission, a report. `demo_training.py` adds a minute of training.
"""

import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape

from ballcast.api import Model, load
from ballcast.core.actions import FPS, OBSERVED_MS
from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Prediction, merge_bins
from ballcast.core.files import write_bytes
from ballcast.core.progress import progress_bar
from ballcast.core.util import print_table
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.windows import STEP_MS
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.expected_precision import chance_within_5s
from ballcast.inference.store_predictor import hashes
from ballcast.inference.submission import check_submission, write_submission
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import bootstrap
from ballcast.model.postprocess import SlotArrays, emit, slot_form
from ballcast.report.film_strip import Footage
from ballcast.report.report import Report, write_report
from ballcast.report.terminal import score_table
from ballcast.video.file import VideoFile
from ballcast.video.queues import Prefetcher

EXCERPT = "excerpt"
NAME = "embedded model, from pixels"


def run(out: Path, console: Console, *, device: str = "auto", samples: Path = SAMPLES) -> Path:
    """Run the demo.

    Args:
        out: folder for a submission and a report.
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
        "[bold]1  Watch[/] an excerpt of a simulated match (Google Research Football; see NOTICE): "
        f"{len(clips)} clips of 30 s, one every 5 s"
    )
    model = load(samples / "anticipator", backbone=samples / "backbone", device=device)
    slots = _slots(out, console, model, video, len(clips))
    console.print("[bold]2  Score[/] what the embedded model anticipated for the 5 s after each clip")
    return _report(out, console, model, clips, slots, samples)


def _slots(out: Path, console: Console, model: Model, video: Path, count: int) -> SlotArrays:
    """The slots of `count` clips of 30 s, one every 5 s of the video; computed once and kept in `out`."""
    config = model.window_model.config
    kept = out / f"slots-{hashes([model.name])[0][:12]}.npz"
    if kept.is_file():
        with np.load(kept) as arrays:
            parts = arrays["objectness"], arrays["classes"], arrays["offsets"]
            return SlotArrays(*parts, config.bins, slot_form(config))
    predictor = model.predictor(every_ms=STEP_MS)
    made = []
    began = time.monotonic()
    with (
        VideoFile(video) as file,
        Prefetcher(file.frames()) as frames,
        progress_bar(console, "   pixels to actions") as progress,
    ):
        total = file.frame_count()
        for frame in frames:
            forecast = predictor.push(frame)
            if forecast is not None and forecast.at_ms >= OBSERVED_MS and predictor.slots is not None:
                made.append(predictor.slots)
            progress(predictor.frames, total)
    seconds = time.monotonic() - began
    slots = SlotArrays.join(made)[:count]
    content = BytesIO()
    np.savez(content, objectness=slots.objectness, classes=slots.classes, offsets=slots.offsets)
    write_bytes(kept, content.getvalue())
    times = predictor.frames / FPS / max(seconds, 0.001)
    console.print(f"   {predictor.frames} frames in {seconds:.0f} s, {times:.1f} × real time")
    return slots


def _report(out: Path, console: Console, model: Model, clips: list[Clip], slots: SlotArrays, samples: Path) -> Path:
    """Score the predictions beside two systems that see no video, and write a submission and the report."""
    settings = model.emit
    weight = model.window_model.pos_weight
    predicted = {name: merge_bins(entries) for name, entries in _named(clips, emit(slots, settings)).items()}
    # For people: only the labels that are emitted, with how often they come true.
    emitted = emit(slots, replace(settings.shown, vector="emitted"), pos_weight=weight)
    if model.precision is not None:
        chances = chance_within_5s(slots, weight)
        emitted = [list(model.precision.calibrate(one, p)[0]) for one, p in zip(emitted, chances, strict=True)]
    shown = _named(clips, emitted)
    past = read_labels(samples / "train")
    systems: dict[str, ClassPrior | Markov] = {
        "Markov, given the true past": Markov(past),
        "class prior": ClassPrior(past),
    }
    result = score(clips, predicted)
    others = {name: score(clips, {clip.name: one.predict(clip) for clip in clips}) for name, one in systems.items()}
    intervals = bootstrap(clips, predicted)
    print_table(console, score_table({NAME: result, **others}))
    low, high = 100 * intervals.avg
    console.print(
        f"   Ten clips are no measurement: the 95 % interval is {low:.0f} to {high:.0f}.\n"
        "   This film shows a name tag over the player in possession, and the\n"
        "   embedded model reads it: expect less of real matches.",
        highlight=False,
    )
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
        intervals=intervals,
        others=others,
        footage={clip.name: Footage(video, STEP_MS * i) for i, clip in enumerate(clips)},
        facts={
            "data": f"an excerpt of a simulated match, {len(clips)} clips: too few for a measurement",
            "model": f"trained on other matches; run by {'ONNX Runtime' if model.runtime == 'onnx' else 'torch'}",
            "features of": str(model.window_model.metadata.get("backbone", {}).get("name", "")),
        },
    )
    path = out / "report.html"
    with progress_bar(console, "   film strips") as progress:
        write_report(path, report, progress)
    console.print(f"\n[bold]Report:[/] {escape(str(path))}", soft_wrap=True)
    return path


def _named(clips: list[Clip], predictions: list[list[Prediction]]) -> dict[str, list[Prediction]]:
    return {clip.name: entries for clip, entries in zip(clips, predictions, strict=True)}

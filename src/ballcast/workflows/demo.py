"""`ballcast demo`: from pixels to a report, and a minute of training, on embedded data and on any machine.

An excerpt of a simulated match that was not used in training goes through all steps: features, predictions, the
official score, a submission, a report. Then a small model is trained on embedded features, as in `ballcast train`.
"""

from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, merge_bins
from ballcast.core.hub import SAMPLES
from ballcast.core.util import print_table
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.data.samples.windows import STEP_MS
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store import LABELS, FeatureStore
from ballcast.features.store_import import cut_clips
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.predictor import check_backbone, predict_store
from ballcast.inference.submission import check_submission, write_submission
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import bootstrap
from ballcast.model.anticipator import Anticipator
from ballcast.report.film_strip import Footage
from ballcast.report.report import Report, write_report
from ballcast.report.terminal import score_table
from ballcast.training.progress import Display
from ballcast.training.run import train
from ballcast.workflows.run_report import report_run

EXCERPT = "excerpt"
NAME = "embedded model, from pixels"
# A small model, to be trained in a minute on two cores; everything else is as in the paper's recipe.
RECIPE = (
    "data.drop_windows=0.1",  # the excerpt is also predicted from its start, with less than 30 s of video
    "data.stitch=false",
    "data.boost={}",
    "model.hierarchy.dim=64",
    "model.hierarchy.encoder_heads=4",
    "model.hierarchy.encoder_ffn=128",
    "model.hierarchy.decoder_layers=2",
    "model.hierarchy.decoder_heads=4",
    "model.hierarchy.decoder_ffn=128",
    "train.epochs=20",
    "train.warmup_epochs=1",
    "train.restart_epochs=19",
    "train.lr=3e-4",
)


def run(out: Path, console: Console, *, device: torch.device, samples: Path = SAMPLES) -> Path:
    """Run the demo.

    Args:
        out: folder for features, a submission, a report and a training run.
        console: to print on.
        device: to compute on.
        samples: the embedded data.

    Returns:
        The report's path.
    """
    if not (samples / "test" / f"{EXCERPT}.mp4").exists():
        raise InputError(f"{samples}: the embedded data are missing; reinstall ballcast")
    clips, store = _features(out, console, device, samples)
    report = _anticipate(out, console, device, samples, clips, store)
    _train(out, console, device, samples)
    console.print(f"\n[bold]Report:[/] {escape(str(report))}", soft_wrap=True)
    return report


def _features(out: Path, console: Console, device: torch.device, samples: Path) -> tuple[list[Clip], FeatureStore]:
    """Extract the excerpt's features; returns its clips and their store."""
    clips = read_labels(samples / "test")
    console.print(
        f"[bold]1  Extract features[/] of an excerpt of a simulated match (Google Research Football; see NOTICE): "
        f"{len(clips)} clips of 30 s, one every 5 s"
    )
    backbone = Backbone.from_pretrained(samples / "backbone")
    with _bar(console, "pixels to features") as bar:
        task = bar.add_task("", total=None)
        done = extract(
            samples / "test" / f"{EXCERPT}.mp4",
            out / "features" / EXCERPT,
            backbone,
            device=device.type,
            progress=lambda frames, total: bar.update(task, completed=frames, total=total),
        )
    if done.frames:
        console.print(f"   {done.frames} frames in {done.seconds:.0f} s")
    return clips, cut_clips(done.store, out / "features" / "test", {EXCERPT: [clip.name for clip in clips]})


def _anticipate(
    out: Path, console: Console, device: torch.device, samples: Path, clips: list[Clip], store: FeatureStore
) -> Path:
    """Predict the clips, score them beside two systems that see no video, and write a submission and the report."""
    console.print("[bold]2  Anticipate[/] the 5 s after each clip with the embedded model")
    model = Anticipator.from_pretrained(samples / "anticipator")
    check_backbone(model, Backbone.from_pretrained(samples / "backbone"), samples / "anticipator", samples / "backbone")
    predicted = predict_store(model, store, clips, model.emit, device)
    predicted = {clip: merge_bins(entries) for clip, entries in predicted.items()}  # the scorer keeps one entry a bin
    # For people: only the labels that are emitted, with calibrated probabilities.
    shown = replace(model.emit.shown, vector="emitted")
    calibrated = predict_store(model, store, clips, shown, device, pos_weight=model.pos_weight)
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
        shown=calibrated,
        intervals=bootstrap(clips, predicted),
        others=others,
        footage={clip.name: Footage(video, STEP_MS * i) for i, clip in enumerate(clips)},
        facts={
            "data": f"an excerpt of a simulated match, {len(clips)} clips: too few for a measurement",
            "model": f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, trained on other matches",
            "features of": str(model.metadata.get("backbone", {}).get("name", "")),
        },
    )
    path = out / "report.html"
    with _bar(console, "film strips") as bar:
        task = bar.add_task("", total=None)
        write_report(path, report, lambda done, total: bar.update(task, completed=done, total=total))
    return path


def _train(out: Path, console: Console, device: torch.device, samples: Path) -> None:
    """Train a small model for a minute on the embedded features of other matches, validated on a further match."""
    for split in ("valid", "train"):
        games = FeatureStore.open(samples / "features" / split)
        clips = read_labels(samples / split)
        each = len(clips) // len(games.names)
        names = {game: [clip.name for clip in clips[i * each : (i + 1) * each]] for i, game in enumerate(games.names)}
        cut = cut_clips(games, out / "features" / split, names)
        write_labels(out / "features" / split / LABELS, clips)
    recipe = load(Recipe, None, [*RECIPE, f"model.clips={cut.clips}", f"model.width={cut.width}"])
    recipe = replace(recipe, data=replace(recipe.data, features=str(out / "features")))
    console.print(
        f"[bold]3  Train[/] a small model for about a minute on features of {len(names)} other matches, scored on one "
        "more match after each epoch"
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a small model gains nothing from more, and on a busy machine they wait for each other
    try:
        with Display(console, recipe.train.epochs) as display:
            progress = train(recipe, out / "run", device=device, show=display.show)
    finally:
        torch.set_num_threads(threads)
    console.print(f"   best validation mAP {100 * progress.best:.1f}, in epoch {progress.best_epoch}")
    report = report_run(recipe, out / "run", device=device)
    console.print(f"   report: {report}", markup=False, soft_wrap=True)


def _bar(console: Console, what: str) -> Progress:
    columns = (TextColumn(f"   {what}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

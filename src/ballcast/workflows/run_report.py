"""The report of a training run: its best model on the validation clips."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.events import Clip, merge_bins
from ballcast.data.labels.games import choose_games
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.frames import open_frames
from ballcast.metrics.average_precision import score
from ballcast.metrics.bootstrap import bootstrap
from ballcast.model.anticipator import Anticipator
from ballcast.model.end_to_end import load_end_to_end
from ballcast.model.postprocess import emit
from ballcast.model.slots import Slots
from ballcast.report.report import History, Report, write_report
from ballcast.training.data import open_splits, scored_windows
from ballcast.training.end_to_end import EndToEndTask
from ballcast.training.evaluation import predict_clips, predict_slots
from ballcast.training.run_folder import EPOCH_COLUMNS, Table

REPORT = "report.html"


@dataclass(frozen=True)
class _Validated:
    """A run's best model, its slots on the validation clips, and where its training and validation data came from."""

    model: Anticipator
    slots: Slots
    clips: Sequence[Clip]
    trained_on: str
    validated_on: str


def report_run(recipe: Recipe, folder: Path, *, device: torch.device) -> Path | None:
    """Write the report of a run.

    Args:
        recipe: of the run.
        folder: of the run; the report is written there.
        device: to compute on.

    Returns:
        The report's path; None for a run without validation.
    """
    end_to_end = recipe.train.backbone == "end_to_end"
    found = _from_videos(recipe, folder, device) if end_to_end else _from_stores(recipe, folder, device)
    if found is None:
        return None
    names = [clip.name for clip in found.clips]
    predicted = dict(zip(names, emit(found.slots, recipe.emission), strict=True))
    # For people: only the labels that are emitted, with calibrated probabilities.
    shown = emit(found.slots, replace(recipe.emission.shown, vector="emitted"), pos_weight=recipe.loss.pos_weight)
    columns = EndToEndTask.epoch_columns if end_to_end else EPOCH_COLUMNS
    rows = Table(folder / "epochs.csv", columns, keep_through=recipe.train.epochs).rows
    loss, average = (columns.index(name) for name in ("total", "avg"))
    best = int(found.model.metadata["epoch"])
    parameters = sum(p.numel() for p in found.model.parameters())
    merged = {name: merge_bins(entries) for name, entries in predicted.items()}
    report = Report(
        f"Training run {folder.name}",
        list(found.clips),
        merged,
        score(found.clips, merged),
        name=f"epoch {best}, on {found.validated_on or 'validation'}",
        shown=dict(zip(names, shown, strict=True)),
        intervals=bootstrap(found.clips, merged) if len(found.clips) > 1 else None,
        facts={
            "model": f"{recipe.model.kind}, {parameters / 1e6:.2f} M parameters",
            "trained on": f"{found.trained_on}: {found.model.metadata['samples']} windows",
            "features of": str(found.model.metadata["backbone"]["name"]),
            "seed": str(recipe.train.seed),
        },
        history=History([float(row[loss]) for row in rows], [float(row[average]) for row in rows], best),
    )
    write_report(folder / REPORT, report)
    return folder / REPORT


def _from_stores(recipe: Recipe, folder: Path, device: torch.device) -> _Validated | None:
    """The best model on the windows of the validation splits."""
    data = recipe.data
    if not data.valid:
        return None
    windows = scored_windows(open_splits(data, data.valid, recipe.model), recipe.model)
    model = Anticipator.from_pretrained(folder / "best").to(device)
    slots = predict_slots(model, Samples(windows, device, data.device))
    return _Validated(model, slots, windows.clips, ", ".join(data.train), ", ".join(data.valid))


def _from_videos(recipe: Recipe, folder: Path, device: torch.device) -> _Validated | None:
    """The best end-to-end model on the official clips of the validation games."""
    config = recipe.games
    games = choose_games(recipe.games)["valid"]
    if not games:
        return None
    learner = load_end_to_end(folder / "best").to(device)
    cache = open_frames(games, config, device, colour=learner.colour)
    clips, slots = predict_clips(learner, cache)
    return _Validated(learner.anticipator, slots, clips, ", ".join(config.train), ", ".join(config.valid))

"""The report of a training run: its best model on the validation clips."""

from dataclasses import replace
from pathlib import Path

import torch

from ballcast.core.anticipator_config import Recipe
from ballcast.core.events import merge_bins
from ballcast.data.samples.batches import Samples
from ballcast.metrics.bootstrap import bootstrap
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit
from ballcast.report.report import History, Report, write_report
from ballcast.training.engine import predict_slots, score_of
from ballcast.training.run_folder import EPOCH_COLUMNS, Table
from ballcast.training.splits import TrainingData, open_splits, scored_windows

REPORT = "report.html"


def report_run(
    recipe: Recipe, folder: Path, *, device: torch.device, training_data: TrainingData | None = None
) -> Path | None:
    """Write the report of a run.

    Args:
        recipe: of the run.
        folder: of the run; the report is written there.
        device: to compute on.
        training_data: replaces the windows of the recipe's stores, as in training.

    Returns:
        The report's path. None for a run without validation, and for a fine-tuned one, whose backbone no longer
        matches the stores' features.
    """
    if recipe.train.backbone == "end_to_end":
        return None
    windows = None
    if training_data is not None:
        windows = training_data.valid
    elif recipe.data.valid:
        windows = scored_windows(open_splits(recipe.data, recipe.data.valid, recipe.model), recipe.model)
    if windows is None:
        return None
    model = Anticipator.from_pretrained(folder / "best").to(device)
    samples = Samples(windows, device, recipe.data.device)
    slots = predict_slots(model, samples)
    predicted = dict(zip(windows.names, emit(slots, recipe.emission), strict=True))
    # For people: only the labels that are emitted, with calibrated probabilities.
    shown = emit(slots, replace(recipe.emission.shown, vector="emitted"), pos_weight=recipe.loss.pos_weight)
    rows = Table(folder / "epochs.csv", EPOCH_COLUMNS, keep_through=recipe.train.epochs).rows
    loss, average = (EPOCH_COLUMNS.index(name) for name in ("total", "avg"))
    best = int(model.metadata["epoch"])
    parameters = sum(p.numel() for p in model.parameters())
    merged = {name: merge_bins(entries) for name, entries in predicted.items()}
    report = Report(
        f"Training run {folder.name}",
        windows.clips,
        merged,
        score_of(samples, predicted),
        name=f"epoch {best}, on {', '.join(recipe.data.valid) or 'validation'}",
        shown=dict(zip(windows.names, shown, strict=True)),
        intervals=bootstrap(windows.clips, merged) if len(windows.clips) > 1 else None,
        facts={
            "model": f"{recipe.model.kind}, {parameters / 1e6:.2f} M parameters",
            "trained on": f"{', '.join(recipe.data.train)}: {model.metadata['samples']} windows",
            "features of": str(model.metadata["backbone"]["name"]),
            "seed": str(recipe.train.seed),
        },
        history=History([float(row[loss]) for row in rows], [float(row[average]) for row in rows], best),
    )
    write_report(folder / REPORT, report)
    return folder / REPORT

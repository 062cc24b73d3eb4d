"""Rows of what a calibration and an ensemble add to trained models: fitted on valid, looked at on test."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ballcast.data.samples.windows import WindowSet
from ballcast.inference.store_predictor import untuned
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.tuning import fit, match_bins, run_emission, run_models, scores_untuned
from ballcast.model.postprocess import Floats, SlotProbabilities
from benchmarks.rows import Result, row_of

SPLITS = ("valid", "test")


def tuned_rows(runs: Sequence[Path], windows: Mapping[str, WindowSet], device: torch.device) -> dict[str, list[Result]]:
    """By name: every run's model tuned; if there are several, their ensemble, and that tuned."""
    models = [TorchRuntime.load(run / "best", device=device) for run in runs]
    outputs = {split: run_models(models, [windows[split]] * len(models)) for split in SPLITS}
    rows = {"tuned": [_tuned([m], [i], outputs, windows) for i, m in enumerate(models)]}
    if len(models) > 1:
        everyone = list(range(len(models)))
        name = f"ensemble of {len(models)}"
        rows[name] = [_rows({split: untuned(models).scores(outputs[split]) for split in SPLITS}, windows)]
        rows[f"{name}, tuned"] = [_tuned(models, everyone, outputs, windows)]
    return rows


def _tuned(
    models: Sequence[TorchRuntime],
    which: Sequence[int],
    outputs: Mapping[str, Sequence[SlotProbabilities]],
    windows: Mapping[str, WindowSet],
) -> Result:
    """What `ballcast tune` leaves: the models calibrated, or as they were where that does not help."""
    began = time.perf_counter()
    chosen = {split: [outputs[split][i] for i in which] for split in SPLITS}
    emitted = {split: run_emission(models, [windows[split]]) for split in SPLITS}
    before = {split: scores_untuned(models, chosen[split], emitted[split]) for split in SPLITS}
    clips, weight = windows["valid"].clips, models[0].pos_weight
    fitted = fit(chosen["valid"], clips, before["valid"], pos_weight=weight, emission=emitted["valid"])
    seconds = time.perf_counter() - began
    outside = f"{100 * fitted.outside_before:.2f} → {100 * fitted.outside_after:.2f}"
    kept = "" if fitted.helps else ", so it is left as it was"
    print(f"tuned {len(models)} model(s) in {seconds:.0f} s; in folds it was not fitted on {outside}{kept}", flush=True)
    if fitted.helps:
        scores = {split: fitted.mapping.scores(chosen[split], emitted[split]) for split in SPLITS}
    else:
        scores = before
    return {**_rows(scores, windows), "seconds": seconds, "outside": fitted.outside_after, "helps": fitted.helps}


def _rows(scores: Mapping[str, Floats], windows: Mapping[str, WindowSet]) -> Result:
    """Of scores (n, 32, C) of each split's windows."""
    return {
        split: row_of(match_bins(own.clips, emitted), own.names, float(emitted.any(-1).sum(1).mean()))
        for split, emitted in scores.items()
        for own in (windows[split],)
    }

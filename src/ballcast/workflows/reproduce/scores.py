"""Scores and submissions of the runs: each best epoch tuned on valid, then valid and test in every reading."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Prediction, merge_bins
from ballcast.core.files import read_json, write_json
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.batches import Samples
from ballcast.features.store import FILE_NAME as MANIFEST
from ballcast.features.store import FeatureStore
from ballcast.inference.store_predictor import check_fits, emission, open_windows
from ballcast.inference.submission import check_submission, write_submission
from ballcast.inference.tuning import fit, record_fit
from ballcast.metrics.average_precision import match_all, score_of_matches
from ballcast.metrics.bootstrap import bootstrap_matches
from ballcast.metrics.diagnosis import per_clip
from ballcast.model.anticipator import WEIGHTS, Anticipator
from ballcast.model.postprocess import SlotProbabilities, emit
from ballcast.model.score_mapping import FILE_NAME, ScoreMapping, weights_hash, write_score_mapping
from ballcast.model.slots import Slots
from ballcast.training.evaluation import predict_slots
from ballcast.workflows.reproduce.job import READINGS, Reading, Reproduction, Run

SCORED = ("valid", "test")


@dataclass(frozen=True)
class SplitSlots:
    """A model's slots for the clips of a split, in order."""

    clips: list[Clip]
    slots: Slots

    def predictions(
        self, model: Anticipator, reading: Reading, mapping: ScoreMapping | None
    ) -> dict[str, list[Prediction]]:
        """Emit predictions by clip, entries of one bin not merged; `mapping`: for a tuned reading."""
        if reading.tuned and mapping is not None:
            made = mapping.predict([SlotProbabilities.from_slots(self.slots)], emission(self.slots, model.emit))
        else:
            made = emit(self.slots, replace(model.emit, **reading.emit))
        return {clip.name: entries for clip, entries in zip(self.clips, made, strict=True)}


def open_model(run: Run) -> Anticipator:
    if not (run.folder / "best").is_dir():
        raise InputError(f"{run.folder}: not trained yet; run the step `train` first")
    return Anticipator.from_pretrained(run.folder / "best")


def predict_split(model: Anticipator, store: FeatureStore, run: Run, device: torch.device) -> SplitSlots:
    """Compute the slots for all clips of a store, labelled or not."""
    check_fits(model, store, run.folder / "best")
    clips = read_labels(store.labels) if store.labels else [Clip(name, labelled=False) for name in store.names]
    windows = open_windows(store, clips, model.config.windows)
    return SplitSlots(clips, predict_slots(model.to(device), Samples(windows, device, "auto")))


def is_scored(job: Reproduction, run: Run) -> bool:
    """Return whether the scores on disk are of these weights, these readings and as many resamples."""
    weights = run.folder / "best" / WEIGHTS
    if not run.scores.is_file() or not weights.is_file():
        return False
    return _made_of(job, run) == read_scores(run).get("made_of")


def read_scores(run: Run) -> dict[str, Any]:
    tree = read_json(run.scores, "scores")
    if not isinstance(tree, dict) or not isinstance(tree.get("rows"), list):
        raise InputError(f"{run.scores}: not written by the step `score`; remove it and run again")
    return tree


def _made_of(job: Reproduction, run: Run) -> dict[str, Any]:
    return {
        "weights": weights_hash(run.folder / "best" / WEIGHTS),
        "readings": list(READINGS),
        "resamples": job.resamples,
    }


def score_run(job: Reproduction, run: Run) -> dict[str, Any]:
    """Tune the run's best epoch on valid (the calibration goes beside its weights if it helps) and score it."""
    model = open_model(run)
    given = {split: predict_split(model, job.store(split), run, job.device) for split in SCORED}
    mapping, tuning = _tune(job, run, model, given["valid"])
    rows = []
    for split, slots in given.items():
        for name, reading in READINGS.items():
            predicted = slots.predictions(model, reading, mapping)
            row = _row(slots.clips, predicted, reading, job.resamples)
            rows.append({"split": split, "reading": name, "clips": len(slots.clips), **row})
    about = model.metadata
    return {
        "made_of": _made_of(job, run),
        "epoch": about["epoch"],
        "samples": about["samples"],
        "class_weights": about["class_weights"],
        "leaks": about.get("leaks", {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tuning": tuning,
        "rows": rows,
    }


def _tune(
    job: Reproduction, run: Run, model: Anticipator, valid: SplitSlots
) -> tuple[ScoreMapping | None, dict[str, float | bool]]:
    """Tune as `ballcast tune` does; no calibration if it does not help in folds it was not fitted on."""
    emitted = emission(valid.slots, model.emit)
    target = run.folder / "best" / FILE_NAME
    outputs = [SlotProbabilities.from_slots(valid.slots)]
    fitted = fit(outputs, valid.clips, emitted.kept, pos_weight=model.pos_weight, emission=emitted)
    about: dict[str, float | bool] = {
        "helps": fitted.helps,
        "outside_before": fitted.outside_before,
        "outside_after": fitted.outside_after,
    }
    if not fitted.helps:
        target.unlink(missing_ok=True)
        return None, about
    tuned = record_fit(fitted, [str(run.folder / "best")], [job.store("valid")], len(valid.clips))
    write_score_mapping(target, tuned)
    return tuned, about


def _row(
    clips: Sequence[Clip], predicted: Mapping[str, Sequence[Prediction]], reading: Reading, resamples: int
) -> dict[str, Any]:
    """Score a reading.

    All models and readings share the resamples of a split's clips, so that their differences can be resampled too.

    Returns:
        mAP at each tolerance and `avg`, as fractions; `predictions` a clip; `resampled`: the mean in each resample.
    """
    merged = {name: merge_bins(entries) for name, entries in predicted.items()}
    matches = match_all(clips, merged, read=reading.read, exact=False)
    result = score_of_matches(matches)
    intervals = bootstrap_matches(matches, len(clips), resamples=resamples)
    return {
        **result.at,
        "avg": result.avg,
        "predictions": per_clip(predicted),
        "events": int(result.events.sum()),
        "resampled": [round(value, 6) for value in intervals.resampled.mean((1, 2)).tolist()],
    }


# -- submissions ---------------------------------------------------------------------------------------------------

SUBMITTED = ("test", "challenge")
INDEX = "submissions.json"  # which run each zip is of


def best_runs(job: Reproduction) -> list[Run]:
    """Return, for every model, the run whose tuned reading is best on valid."""
    runs = list(job.runs())
    for run in runs:
        if not is_scored(job, run):
            raise InputError(f"{run.name}: not scored yet; run the step `score` first")
    return [max((r for r in runs if r.recipe == name), key=_on_valid) for name in job.recipes]


def _on_valid(run: Run) -> float:
    rows = read_scores(run)["rows"]
    return next(row["avg"] for row in rows if (row["split"], row["reading"]) == ("valid", "tuned"))


def _zips(job: Reproduction, run: Run) -> dict[Path, tuple[str, str]]:
    """Return the split and the reading of each zip of a run."""
    splits = [split for split in SUBMITTED if (job.features / split / MANIFEST).is_file()]
    names = ("tuned", "untuned") if read_scores(run)["tuning"]["helps"] else ("untuned",)
    folder = job.out / "submissions"
    return {folder / f"{run.recipe}-{split}-{name}.zip": (split, name) for split in splits for name in names}


def _index(job: Reproduction, runs: list[Run]) -> dict[str, Any]:
    return {
        path.name: {"run": run.name, "weights": read_scores(run)["made_of"]["weights"]}
        for run in runs
        for path in _zips(job, run)
    }


def pending_submissions(job: Reproduction) -> list[str]:
    """List the zips that are missing, or not of the weights of the best runs."""
    if not all(is_scored(job, run) for run in job.runs()):
        return ["every zip"]
    path = job.out / "submissions" / INDEX
    runs = best_runs(job)
    made = read_json(path, "list of submissions") if path.is_file() else {}
    wanted = _index(job, runs)
    return [name for name in wanted if made.get(name) != wanted[name] or not (path.parent / name).is_file()]


def write_submissions(job: Reproduction) -> None:
    """Write every zip and check it as `ballcast submit --check` does."""
    if not pending_submissions(job):
        return
    runs = best_runs(job)
    for run in runs:
        model = open_model(run)
        zips = _zips(job, run)
        for split in dict.fromkeys(split for split, _ in zips.values()):
            slots = predict_split(model, job.store(split), run, job.device)
            for path, (of, reading) in zips.items():
                if of != split:
                    continue
                write_submission(path, slots.predictions(model, READINGS[reading], model.score_mapping))
                if defects := check_submission(path, slots.clips):
                    raise InputError(f"{path}: {len(defects)} defect(s), the first: {defects[0]}")
                job.log(f"{path}: {len(slots.clips)} clips, {run.name}")
    write_json(job.out / "submissions" / INDEX, _index(job, runs), indent=1)

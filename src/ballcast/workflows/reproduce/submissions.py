"""The zips for the challenge's servers: of every model, the seed that is best on valid, untuned and tuned."""

from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.files import read_json, write_json
from ballcast.features.store import FILE_NAME
from ballcast.inference.submission import check_submission, write_submission
from ballcast.workflows.reproduce.recipes import READINGS
from ballcast.workflows.reproduce.scores import answer, is_scored, open_model, read_scores
from ballcast.workflows.reproduce.work import Run, RunningJob

SPLITS = ("test", "challenge")
INDEX = "submissions.json"  # which run each zip is of


def best_runs(work: RunningJob) -> list[Run]:
    """Of every model the run whose tuned reading is best on valid."""
    runs = list(work.runs())
    for run in runs:
        if not is_scored(work, run):
            raise InputError(f"{run.name}: is not scored yet; run the step `score` first")
    return [max((r for r in runs if r.recipe == name), key=_on_valid) for name in work.recipes]


def _on_valid(run: Run) -> float:
    rows = read_scores(run)["rows"]
    return next(row["avg"] for row in rows if (row["split"], row["reading"]) == ("valid", "tuned"))


def _zips(work: RunningJob, run: Run) -> dict[Path, tuple[str, str]]:
    """Zip → (split, reading)."""
    splits = [split for split in SPLITS if (work.features / split / FILE_NAME).is_file()]
    names = ("tuned", "untuned") if read_scores(run)["tuning"]["helps"] else ("untuned",)
    folder = work.out / "submissions"
    return {folder / f"{run.recipe}-{split}-{name}.zip": (split, name) for split in splits for name in names}


def _index(work: RunningJob, runs: list[Run]) -> dict[str, Any]:
    return {
        path.name: {"run": run.name, "weights": read_scores(run)["made_of"]["weights"]}
        for run in runs
        for path in _zips(work, run)
    }


def is_submitted(work: RunningJob) -> list[str]:
    """The zips that are still to be written, or are of other weights than those of the best runs."""
    if not all(is_scored(work, run) for run in work.runs()):
        return ["every zip"]
    path, runs = work.out / "submissions" / INDEX, best_runs(work)
    made = read_json(path, "list of submissions") if path.is_file() else {}
    wanted = _index(work, runs)
    return [name for name in wanted if made.get(name) != wanted[name] or not (path.parent / name).is_file()]


def write_submissions(work: RunningJob) -> None:
    """Write every zip and check it as `ballcast submit --check` does."""
    if not is_submitted(work):
        return
    runs = best_runs(work)
    for run in runs:
        model = open_model(run)
        zips = _zips(work, run)
        for split in dict.fromkeys(split for split, _ in zips.values()):
            answered = answer(model, work.store(split), run, work.device)
            for path, (of, reading) in zips.items():
                if of != split:
                    continue
                write_submission(path, answered.predictions(model, READINGS[reading], model.calibration))
                if defects := check_submission(path, answered.clips):
                    raise InputError(f"{path}: {len(defects)} defect(s), the first: {defects[0]}")
                work.say(f"{path}: {len(answered.clips)} clips, {run.name}")
    write_json(work.out / "submissions" / INDEX, _index(work, runs), indent=1)

"""The steps, in order. A step is done when its output is complete; an interrupted step resumes."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.data.download.download import download
from ballcast.data.labels.soccernet import SPLITS, check, read_labels, write_labels
from ballcast.features.extract import extract
from ballcast.features.store import FILE_NAME, LABELS
from ballcast.training.progress import Display
from ballcast.training.run import train
from ballcast.training.run_folder import is_finished
from ballcast.workflows.reproduce.job import EVERY, LABELLED, QUICK_CLIPS, RECIPES, Reproduction
from ballcast.workflows.reproduce.plan import plan_table
from ballcast.workflows.reproduce.scores import is_scored, pending_submissions, score_run, write_submissions
from ballcast.workflows.reproduce.table import write_table


@dataclass(frozen=True)
class Step:
    """A step of the reproduction.

    Args:
        about: one line for the plan.
        pending: lists what is left to do; empty: the step is done.
        run: does it; a second call on finished work changes nothing.
    """

    about: str
    pending: Callable[[Reproduction], list[str]]
    run: Callable[[Reproduction], None]


def reproduce(job: Reproduction, only: Sequence[str] = (), *, plan: bool = False) -> None:
    """Print the plan and run the steps.

    Args:
        job: the options and places.
        only: names of the steps to run; none: all.
        plan: print the plan and do nothing.
    """
    for name in only:
        if name not in STEPS:
            raise InputError(f"unknown step {name!r}; choose from {', '.join(STEPS)}")
    chosen = {name: step for name, step in STEPS.items() if not only or name in only}
    if "data" in chosen or plan:
        fetches = job.password is not None and _missing(job)
        if not fetches:
            job.require_data()
    left = {name: step.pending(job) for name, step in chosen.items()}
    if plan or any(left.values()):
        plan_table(job, {name: (STEPS[name].about, names) for name, names in left.items()})
    if plan:
        return
    for name, step in chosen.items():
        if left[name]:
            job.log(f"\n{name}: {step.about}")
        step.run(job)


# -- data ----------------------------------------------------------------------------------------------------------


def _missing(job: Reproduction) -> list[str]:
    """List the splits to download: all that are missing, if a required one is missing."""
    needed = any(not (job.given / split).is_dir() for split in LABELLED)
    return [split for split in SPLITS if not (job.given / split).is_dir()] if needed else []


def _data_pending(job: Reproduction) -> list[str]:
    if missing := _missing(job):
        return missing
    return [split for split in job.splits if not (job.videos / split).is_dir()] if job.quick else []


def _data(job: Reproduction) -> None:
    """Download what is missing, check everything, and with --quick select the first clips."""
    if job.password is not None and (missing := _missing(job)):
        download(missing, job.data, password=job.password, resolution=job.wanted_resolution, log=job.log)
    job.require_data()
    defects = [defect for split in check(job.given) for defect in split.defects]
    if defects:
        more = f" and {len(defects) - 1} more" if len(defects) > 1 else ""
        raise InputError(f"{defects[0]}{more}; `ballcast data check` lists them all")
    if job.quick:
        for split in (s for s in job.splits if (job.given / s).is_dir()):
            _take_first(job.given / split, job.videos / split)


def _take_first(split: Path, target: Path) -> None:
    """Make a split of the first clips with links to their folders; it appears in one step."""
    if target.is_dir():
        return
    clips = read_labels(split)[:QUICK_CLIPS]
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for clip in clips:
        (temporary / clip.name).symlink_to((split / clip.name).resolve(), target_is_directory=True)
    if (split / LABELS).exists():
        write_labels(temporary / LABELS, clips)
    os.rename(temporary, target)


# -- backbone and features -----------------------------------------------------------------------------------------


def _backbone_pending(job: Reproduction) -> list[str]:
    if job.backbone is not None or not (job.videos / "train").is_dir():
        return [] if job.backbone is not None else ["pre-training"]
    return [] if is_finished(job.pretrain_config, job.pretraining) else ["pre-training"]


def _backbone(job: Reproduction) -> None:
    config = job.pretrain_config
    if job.backbone is None and not is_finished(config, job.pretraining):
        with Display(job.console, config.train.epochs, measure="spotting AP") as display:
            train(config, job.pretraining, device=job.device, show=display.show, log=job.log, bar=job.frames)
    job.network  # noqa: B018  (loads it: a checkpoint that cannot be read is reported here)


def _features_pending(job: Reproduction) -> list[str]:
    return [split for split in job.splits if not (job.features / split / FILE_NAME).is_file()]


def _features(job: Reproduction) -> None:
    """Extract every split; of a finished store only the videos are compared."""
    for split in job.splits:
        source = job.videos / split
        if not source.is_dir() and (job.features / split / FILE_NAME).is_file():
            continue  # the challenge split of an earlier call: its videos are gone, so nothing can have changed
        with job.frames() as progress:
            report = extract(
                source,
                job.features / split,
                job.network,
                every=EVERY[split],
                device=job.device.type,
                workers=job.workers,
                progress=progress,
            )
        if report.failed:
            raise InputError(
                f"{len(report.failed)} of {len(report.failed) + len(report.store)} clips of {split} have no features; "
                f"the first: {report.failed[0].reason}"
            )
        if report.frames:
            job.log(f"{split}: {report.frames} frames in {report.seconds:.0f} s")


# -- training, scores, submissions, table --------------------------------------------------------------------------


def _train_pending(job: Reproduction) -> list[str]:
    if _features_pending(job):
        return [run.name for run in job.runs()]
    store = job.store("train")
    return [run.name for run in job.runs() if not is_finished(job.recipe(run, store.snippets, store.width), run.folder)]


def _train(job: Reproduction) -> None:
    store = job.store("train")
    for run in job.runs():
        recipe = job.recipe(run, store.snippets, store.width)
        if is_finished(recipe, run.folder):
            continue
        job.log(f"{run.name}: {RECIPES[run.recipe].title}, seed {run.seed}")
        with Display(job.console, recipe.train.epochs) as display:
            train(recipe, run.folder, device=job.device, show=display.show)


def _score(job: Reproduction) -> None:
    for run in job.runs():
        if not is_scored(job, run):
            scores = score_run(job, run)
            write_json(run.scores, scores, checksum=True)
            means = {row["split"]: row["avg"] for row in scores["rows"] if row["reading"] == "untuned"}
            job.log(f"{run.name}: " + ", ".join(f"{split} {100 * avg:.2f}" for split, avg in means.items()))


STEPS = {
    "data": Step("download what is missing, check clips and labels", _data_pending, _data),
    "backbone": Step("pre-train a backbone on the training games", _backbone_pending, _backbone),
    "features": Step("extract features of every split", _features_pending, _features),
    "train": Step("train every model with every seed", _train_pending, _train),
    "score": Step(
        "tune on valid; score valid and test in every reading",
        lambda job: [run.name for run in job.runs() if not is_scored(job, run)],
        _score,
    ),
    "submit": Step("write the zips for the challenge's servers", pending_submissions, write_submissions),
    "table": Step("print the table beside the published rows", lambda job: [], write_table),
}

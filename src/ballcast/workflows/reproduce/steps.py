"""The steps, in order. Each is done when its output is there and whole, and goes on where it was stopped."""

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
from ballcast.features.manifest import FILE_NAME
from ballcast.features.store import LABELS
from ballcast.training.pretrain import Pretraining
from ballcast.training.progress import Display
from ballcast.training.run import train
from ballcast.training.run_folder import is_finished
from ballcast.workflows.reproduce.plan import plan_table
from ballcast.workflows.reproduce.recipes import QUICK_CLIPS, RECIPES
from ballcast.workflows.reproduce.scores import is_scored, score_run
from ballcast.workflows.reproduce.submissions import is_submitted, write_submissions
from ballcast.workflows.reproduce.table import write_table
from ballcast.workflows.reproduce.work import EVERY, LABELLED, RunningJob


@dataclass(frozen=True)
class Step:
    """One part of the work.

    - `pending`: names what is left to do; nothing: the step is done.
    - `run`: does it; a second call on finished work changes nothing.
    """

    about: str
    pending: Callable[[RunningJob], list[str]]
    run: Callable[[RunningJob], None]


def reproduce(work: RunningJob, only: Sequence[str] = (), *, plan: bool = False) -> None:
    """Do the steps `only` (none: all), after printing the plan; `plan`: print the plan and do nothing."""
    for name in only:
        if name not in STEPS:
            raise InputError(f"there is no step {name!r}; choose from {', '.join(STEPS)}")
    chosen = {name: step for name, step in STEPS.items() if not only or name in only}
    if "data" in chosen or plan:
        fetches = work.password is not None and _missing(work)
        if not fetches:
            work.require_data()
    left = {name: step.pending(work) for name, step in chosen.items()}
    if plan or any(left.values()):
        plan_table(work, {name: (STEPS[name].about, names) for name, names in left.items()})
    if plan:
        return
    for name, step in chosen.items():
        if left[name]:
            work.say(f"\n{name}: {step.about}")
        step.run(work)


# -- data ----------------------------------------------------------------------------------------------------------


def _missing(work: RunningJob) -> list[str]:
    """The splits to fetch: all that are not there, if one of those that are needed is not."""
    needed = any(not (work.given / split).is_dir() for split in LABELLED)
    return [split for split in SPLITS if not (work.given / split).is_dir()] if needed else []


def _data_pending(work: RunningJob) -> list[str]:
    if missing := _missing(work):
        return missing
    return [split for split in work.splits if not (work.videos / split).is_dir()] if work.quick else []


def _data(work: RunningJob) -> None:
    """Fetch what is missing, check everything, and with --quick take the first clips."""
    if work.password is not None and (missing := _missing(work)):
        download(missing, work.data, password=work.password, resolution=work.wanted_resolution, say=work.say)
    work.require_data()
    defects = [defect for split in check(work.given) for defect in split.defects]
    if defects:
        more = f" and {len(defects) - 1} more" if len(defects) > 1 else ""
        raise InputError(f"{defects[0]}{more}; `ballcast data check` lists them all")
    if work.quick:
        for split in (s for s in work.splits if (work.given / s).is_dir()):
            _take_first(work.given / split, work.videos / split)


def _take_first(split: Path, target: Path) -> None:
    """A split of the first clips, their folders linked; it appears all at once."""
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


def _backbone_pending(work: RunningJob) -> list[str]:
    if work.backbone is not None or not (work.videos / "train").is_dir():
        return [] if work.backbone is not None else ["pre-training"]
    return [] if is_finished(work.pretrain_config, work.pretraining) else ["pre-training"]


def _backbone(work: RunningJob) -> None:
    config = work.pretrain_config
    if work.backbone is None and not is_finished(config, work.pretraining):
        display = Display(work.console, config.train.epochs, measure="spotting AP")
        run = Pretraining(config, work.pretraining, device=work.device, show=display.show, log=work.say)
        with work.frames() as decoded:
            run.load_frames(decoded)
        with display:
            run.fit()
    work.network  # noqa: B018  (a checkpoint that cannot be read is told here)


def _features_pending(work: RunningJob) -> list[str]:
    return [split for split in work.splits if not (work.features / split / FILE_NAME).is_file()]


def _features(work: RunningJob) -> None:
    """Extract every split; a finished store is only compared with its videos."""
    for split in work.splits:
        source = work.videos / split
        if not source.is_dir() and (work.features / split / FILE_NAME).is_file():
            continue  # the challenge of an earlier call; nothing can have changed
        with work.frames() as progress:
            report = extract(
                source,
                work.features / split,
                work.network,
                every=EVERY[split],
                device=work.device.type,
                workers=work.workers,
                progress=progress,
            )
        if report.failed:
            raise InputError(
                f"{len(report.failed)} of {len(report.failed) + len(report.store)} clips of {split} gave no features; "
                f"the first: {report.failed[0].reason}"
            )
        if report.frames:
            work.say(f"{split}: {report.frames} frames in {report.seconds:.0f} s")


# -- training, scores, submissions, table --------------------------------------------------------------------------


def _train_pending(work: RunningJob) -> list[str]:
    if _features_pending(work):
        return [run.name for run in work.runs()]
    store = work.store("train")
    return [run.name for run in work.runs() if not is_finished(work.recipe(run, store.clips, store.width), run.folder)]


def _train(work: RunningJob) -> None:
    store = work.store("train")
    for run in work.runs():
        recipe = work.recipe(run, store.clips, store.width)
        if is_finished(recipe, run.folder):
            continue
        work.say(f"{run.name}: {RECIPES[run.recipe].title}, seed {run.seed}")
        with Display(work.console, recipe.train.epochs) as display:
            train(recipe, run.folder, device=work.device, show=display.show)


def _score(work: RunningJob) -> None:
    for run in work.runs():
        if not is_scored(work, run):
            scores = score_run(work, run)
            write_json(run.scores, scores)
            told = {row["split"]: row["avg"] for row in scores["rows"] if row["reading"] == "untuned"}
            work.say(f"{run.name}: " + ", ".join(f"{split} {100 * avg:.2f}" for split, avg in told.items()))


STEPS = {
    "data": Step("fetch what is missing, check clips and labels", _data_pending, _data),
    "backbone": Step("pre-train a backbone on the training games", _backbone_pending, _backbone),
    "features": Step("extract features of every split", _features_pending, _features),
    "train": Step("train every model with every seed", _train_pending, _train),
    "score": Step(
        "tune on valid; score valid and test in every reading",
        lambda work: [run.name for run in work.runs() if not is_scored(work, run)],
        _score,
    ),
    "submit": Step("write the zips for the challenge's servers", is_submitted, write_submissions),
    "table": Step("print the table beside the published rows", lambda work: [], write_table),
}

"""Read the actual events of a video from a labels file that was uploaded or is beside the video.

Formats: `Labels-ball.json` of SN-BAA and SN-BAS, `matches.json` of simulated matches, OSL JSON.
"""

import threading
from functools import lru_cache
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.events import Event, Prediction
from ballcast.core.files import read_json
from ballcast.data.labels.games import MATCHES, one_clock, read_halves, read_matches
from ballcast.data.labels.osl import read_osl
from ballcast.data.labels.soccernet import read_labels
from ballcast.features.store import LABELS
from ballcast_server.jobs.jobs import LABELS as LABELS_OF_JOB
from ballcast_server.jobs.jobs import Jobs
from ballcast_server.jobs.own_file import is_own_file
from ballcast_server.jobs.store import Job
from ballcast_server.settings import Limits, RequestError

Items = dict[str, tuple[Event, ...]]  # events by name of the video


def actual_beside(video: Path) -> tuple[Event, ...] | None:
    """Read the events of a video from the first labels file beside it that contains the video.

    Args:
        video: path of the video.

    Returns:
        Its events in order of time; None: no such file.
    """
    path = video.with_suffix(".json")
    if path.is_file():
        return read_actual(path, video.name)
    above = video.parent.parent / LABELS  # SN-BAA: train/Labels-ball.json, train/clip_1/224p.mp4
    beside = ((video.parent / LABELS, video.name), (video.parent / MATCHES, video.name), (above, video.parent.name))
    for file, name in beside:
        if file.is_file() and (events := _named(_items(file, name), name)) is not None:
            return events
    return None


def read_actual(file: Path, video: str, *, entries: int | None = None, events: int | None = None) -> tuple[Event, ...]:
    """Read the events of a video from a labels file.

    Args:
        file: the labels; if they are of a single video, names are not compared.
        video: name of the video or of its clip.
        entries: most values the file may have, checked before it is parsed; None: no limit.
        events: most events of the video; None: no limit.

    Returns:
        Its events in order of time.

    Raises:
        InputError: the file cannot be read, is over the limits, or does not contain the video.
    """
    if entries is not None:
        _check_entries(file, entries)
    items = _items(file, video)
    named = _named({video: next(iter(items.values()))} if len(items) == 1 else items, video)
    if named is None:
        stem = Path(video).stem
        raise InputError(f"{file}: has {len(items)} videos, none of them called {stem}; give the file of this video")
    if events is not None and len(named) > events:
        raise InputError(f"{file}: has {len(named):,} events of the video, more than the {events:,} allowed here")
    return named


def _check_entries(file: Path, most: int) -> None:
    """Raise InputError if a JSON file has more values than `most`: each takes a hundred bytes of memory and more."""
    try:
        text = file.read_bytes()
    except OSError:
        return  # reported by the reader
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > most:  # every value but the first comes after one
        raise InputError(f"{file}: has more than the {most:,} values allowed here; give the labels of this video only")


def _named(items: Items, video: str) -> tuple[Event, ...] | None:
    """The events of `video` in order of time; None: not among the items."""
    stem = Path(video).stem
    for name, events in items.items():
        if stem in (name, Path(name).stem):
            return tuple(sorted(events, key=lambda event: event.position_ms))
    return None


def _items(file: Path, video: str) -> Items:
    """Read a labels file; its format is recognised by its content, not by its name."""
    tree = read_json(file, "labels")
    if isinstance(tree, list):
        return {match.video: match.events for match in read_matches(file)}
    keys = tree.keys() if isinstance(tree, dict) else ()
    if "videos" in keys:
        return {clip.name: (*clip.observation, *clip.anticipation) for clip in read_labels(file)}
    if "annotations" in keys:
        halves = read_halves(file)
        half = {"1_": 1, "2_": 2}.get(video[:2])  # 1_720p.mkv is the first half; else the whole game is one video
        return {video: halves.get(half, ()) if half else one_clock(file, halves)}
    if "data" in keys:
        return {name: _happened(file, events) for name, events in read_osl(file).items.items()}
    raise InputError(f"{file}: not one of {LABELS}, {MATCHES} and OSL JSON")


def _happened(file: Path, events: tuple[Event | Prediction, ...]) -> tuple[Event, ...]:
    happened = tuple(event for event in events if isinstance(event, Event))
    if len(happened) < len(events):
        raise InputError(f"{file}: holds predictions, not what happened; give labels")
    return happened


class LabelReader:
    """Reads the actual events of jobs and streams, one file at a time: 16 MiB take hundreds of MB while they are read.

    Args:
        jobs: the jobs, whose folders hold uploaded labels.
        limits: bounds on uploaded labels.
    """

    def __init__(self, jobs: Jobs, limits: Limits) -> None:
        self._jobs = jobs
        self._limits = limits
        self._reading = threading.Lock()
        self._cached = lru_cache(maxsize=32)(self._parse)  # of the latest files, until they change

    def read(self, file: Path, video: str) -> tuple[Event, ...]:
        """Read uploaded labels; arguments and errors as in `read_actual`."""
        with self._reading:
            now = file.stat()
            return self._cached(file, video, (now.st_ino, now.st_mtime_ns, now.st_size))

    def of_job(self, job: Job) -> tuple[Event, ...] | None:
        """Actual events of a job's video, from its uploaded labels, else from those beside it.

        Returns:
            The events; None: there are no labels.

        Raises:
            RequestError: 422, the labels cannot be read.
        """
        uploaded = self._jobs.folder(job.id) / LABELS_OF_JOB
        try:
            if is_own_file(uploaded):
                return self.read(uploaded, Path(job.name).name)
            video = self._jobs.video_of(job)
            with self._reading:
                return actual_beside(video) if job.library and video is not None else None
        except InputError as error:
            raise RequestError(422, self._jobs.hide_folders(str(error).replace(str(uploaded), "the labels"))) from None

    def of_stream(self, address: str) -> tuple[Event, ...] | None:
        """Actual events of a stream that is a file, from the labels beside it; None and errors as in `of_job`."""
        path = Path(address)
        try:
            with self._reading:
                return actual_beside(path) if path.is_file() else None
        except InputError as error:
            message = str(error)
            for folder in (path.parent, path.parent.parent):
                message = message.replace(f"{folder}/", "")
            raise RequestError(422, message) from None

    def _parse(self, file: Path, video: str, _: tuple[int, ...]) -> tuple[Event, ...]:
        return read_actual(file, video, entries=self._limits.labels_entries, events=self._limits.labels_events)

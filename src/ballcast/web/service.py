import asyncio
import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.core.files import file_lock
from ballcast.core.util import natural
from ballcast.video.container import SUFFIXES, VideoInfo
from ballcast.web import decoder
from ballcast.web.auth import TokenAuth
from ballcast.web.jobs import ACTIVE, Job, JobStore
from ballcast.web.labels import actual_beside, read_actual
from ballcast.web.settings import Engine, RequestError, Settings
from ballcast.web.streams import OpenSession, Stream, open_session
from ballcast.web.uploads import ConcurrencyLimit, check_space
from ballcast.web.workers import Workers

MOST = 5000  # videos listed
FRESH_S = 5.0  # how long a listing is taken for true


@dataclass(frozen=True, slots=True)
class Video:
    """A file of the folder. id: 16 hex digits of its name's hash. name: its path below the folder, as shown."""

    id: str
    name: str
    path: Path
    bytes: int


class Library:
    """A folder of videos, looked through again when its listing is older than a few seconds."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give --videos a folder of videos")
        self.folder = folder.resolve() if folder is not None else None
        self._lock = threading.Lock()
        self._found: dict[str, Video] = {}
        self._looked = -FRESH_S

    def all(self) -> list[Video]:
        return list(self._look().values())

    def get(self, video_id: str) -> Video | None:
        return self._look().get(video_id)

    def _look(self) -> dict[str, Video]:
        with self._lock:
            if self.folder is not None and time.monotonic() - self._looked > FRESH_S:
                self._found = {video.id: video for video in _videos(self.folder)}
                self._looked = time.monotonic()
            return self._found


def _videos(folder: Path) -> list[Video]:
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in SUFFIXES:
            continue
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:  # it was taken away meanwhile
            continue
        if size is None:
            continue
        name = os.fsencode(path.relative_to(folder).as_posix())  # any bytes; shown is what of them is text
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name.decode(errors="replace"))
        found.append(Video(hashlib.sha256(name).hexdigest()[:16], shown, path, size))
        if len(found) == MOST:
            break
    return sorted(found, key=lambda video: natural(video.name))


UPLOAD, LABELS = "video", "labels.json"  # in a job's folder
UNFINISHED = "unfinished"  # beside an upload until it is a job
PROBES = 2  # videos looked at at once: each may take the memory that decoding is allowed


class Service:
    """Made when the server is set up, at work between `open` and `close`.

    sessions: how an address becomes a live session; by default the engine's.
    """

    def __init__(self, settings: Settings, engine: Engine, *, sessions: OpenSession | None = None) -> None:
        self.settings, self.engine = settings, engine
        self.limits = settings.limits
        self.auth = TokenAuth(settings.token, settings.limits)
        self.library = Library(settings.videos)
        self.gate = ConcurrencyLimit(settings.limits)
        self._probing = threading.Semaphore(PROBES)
        self._sessions = sessions or open_session(engine)
        self._jobs = settings.data.absolute() / "jobs"  # the decoder's process works in another folder

    @contextmanager
    def opened(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """At work on what is in the data folder, alone."""
        self._jobs.mkdir(parents=True, exist_ok=True)
        busy = f"{self.settings.data}: another server uses this folder; stop it, or give another with --data"
        with file_lock(self.settings.data / ".lock", busy):
            self.store = JobStore(self.settings.data / "jobs.sqlite")
            self._sweep()
            self.streams = {
                name: Stream(name, address, self._sessions, loop) for name, address in self.settings.streams.items()
            }
            self.workers = Workers(
                self.store, self.engine, self.limits, loop, self.video_of, self.folder_of, self.settings.workers
            )
            self.workers.start()
            try:
                yield
            finally:
                self.close_channels()
                self.store.close()

    def close_channels(self) -> None:
        """End what holds connections open: streams and jobs at work."""
        self.workers.stop()
        for stream in self.streams.values():
            stream.close()

    def job(self, job_id: str) -> Job:
        job = self.store.get(job_id)
        if job is None:
            raise RequestError(404, "there is no such job")
        return job

    def folder_of(self, job: Job) -> Path:
        """Named by an id that was made here."""
        return self.folder(job.id)

    def folder(self, made_id: str) -> Path:
        """Of a job, by an id of `Job.new_id` or of the store; never by one of a request."""
        return self._jobs / made_id

    def probe(self, path: Path, name: str) -> VideoInfo:
        """What a video says of itself, a few at a time; a `Refused` if it is none, or over the limits."""
        with self._probing:
            try:
                return decoder.probe(path, name, self.limits)
            except InputError as error:
                raise RequestError(422, str(error)) from None

    def video_of(self, job: Job) -> Path | None:
        """Where the job's video lies; None: it was taken out of the folder."""
        if job.library:
            video = self.library.get(job.library)
            return None if video is None else video.path
        path = self.folder_of(job) / UPLOAD
        return path if path.is_file() else None

    def actual_of(self, job: Job) -> tuple[Event, ...] | None:
        """What happened in the job's video, from labels uploaded for it, else from those beside it; None: unknown."""
        given = self.folder_of(job) / LABELS
        try:
            if given.is_file():
                return read_actual(given, Path(job.name).name)
            video = self.video_of(job)
            return actual_beside(video) if job.library and video is not None else None
        except InputError as error:
            raise RequestError(422, self.shown(str(error).replace(str(given), "the labels"))) from None

    def actual_of_stream(self, name: str) -> tuple[Event, ...] | None:
        """What happens in a stream that is a file played in real time, from labels beside it."""
        path = Path(self.settings.streams[name])
        try:
            return actual_beside(path) if path.is_file() else None
        except InputError as error:
            told = str(error)
            for folder in (path.parent, path.parent.parent):  # whom it does not concern, as in `shown`
                told = told.replace(f"{folder}/", "")
            raise RequestError(422, told) from None

    def shown(self, text: str) -> str:
        """The same for viewers, whom it does not concern where on the server's disk a file lies."""
        folders = [self._jobs, self._jobs.parent]
        if self.library.folder is not None:
            folders += [self.library.folder, self.library.folder.parent]  # labels may lie above a video's folder
        for folder in folders:
            text = text.replace(f"{folder}/", "")
        return text

    def check_room(self, user: str) -> None:
        """A `Refused` if the user may not add a job now, or the disk has no room for one."""
        check_space(self._jobs, 0, self.limits)
        active, total = self.store.count(user)
        if active >= self.limits.waiting_a_user:
            raise RequestError(429, f"{active} jobs of yours are waiting; let some end, or cancel them")
        if total >= self.limits.kept_a_user:
            raise RequestError(429, f"{total} jobs of yours are kept; delete some")

    def cancel(self, job: Job) -> Job:
        if not self.store.end(job.id, "cancelled"):
            raise RequestError(409, f"the job has ended: it is {self.job(job.id).state}")
        job = self.job(job.id)
        self.workers.close_channel(job)
        self.workers.drop_ended()
        self.workers.look()
        return job

    def delete(self, job: Job) -> None:
        """The job, its upload and its results; the files first, so that it helps where the disk is full."""
        shutil.rmtree(self.folder_of(job), ignore_errors=True)
        if job.state in ACTIVE:
            self.store.end(job.id, "cancelled")
            self.workers.close_channel(self.job(job.id))
        self.store.remove(job.id)
        self.workers.drop_ended()
        self.workers.look()

    def viewers(self) -> int:
        return sum(stream.viewers for stream in self.streams.values()) + self.workers.viewers

    def _sweep(self) -> None:
        """Remove what uploads that were cut off left, and nothing else: not what we did not make, nor uploads whose
        database was lost."""
        known = {job.id for job in self.store.all()}
        for folder in self._jobs.iterdir():
            if not re.fullmatch(r"[0-9a-f]{16}", folder.name) or not folder.is_dir():
                continue
            if folder.name in known:
                (folder / UNFINISHED).unlink(missing_ok=True)
            elif (folder / UNFINISHED).exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with suppress(OSError):  # there is something in it
                    folder.rmdir()

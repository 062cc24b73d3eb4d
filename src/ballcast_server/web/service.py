"""What the routes work on: the library of videos, the jobs and their files, the workers and the streams."""

import asyncio
import errno
import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.core.files import file_lock
from ballcast.core.util import natural
from ballcast.video.container import SUFFIXES, VideoInfo
from ballcast_server.web import decoder
from ballcast_server.web.auth import TokenAuth
from ballcast_server.web.jobs import ACTIVE, Job, JobStore
from ballcast_server.web.labels import actual_beside, read_actual
from ballcast_server.web.settings import PredictorFactory, RequestError, Settings
from ballcast_server.web.stream_store import StreamStore
from ballcast_server.web.streams import LazyScheduler, OpenSession, Stream, open_session
from ballcast_server.web.tokens import TokenStore
from ballcast_server.web.uploads import ConcurrencyLimit, require_space
from ballcast_server.web.workers import Workers

MAX_VIDEOS = 5000  # listed
LISTING_TTL_S = 5.0  # time for which a listing is reused


@dataclass(frozen=True, slots=True)
class Video:
    """A video of the folder given with --videos.

    Args:
        id: 16 hex digits of the hash of its name.
        name: path relative to the folder, for display.
        path: of the file.
        bytes: size of the file.
    """

    id: str
    name: str
    path: Path
    bytes: int


class Library:
    """A folder of videos, listed again when the last listing is older than `LISTING_TTL_S`."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise InputError(f"{folder}: no such folder; give --videos a folder of videos")
        self.folder = folder.resolve() if folder is not None else None
        self._lock = threading.Lock()
        self._found: dict[str, Video] = {}
        self._listed_at = -LISTING_TTL_S

    def all(self) -> list[Video]:
        """All videos, in natural order of their names."""
        return list(self._videos().values())

    def get(self, video_id: str) -> Video | None:
        """The video with this id, or None."""
        return self._videos().get(video_id)

    def _videos(self) -> dict[str, Video]:
        with self._lock:
            if self.folder is not None and time.monotonic() - self._listed_at > LISTING_TTL_S:
                self._found = {video.id: video for video in _list_videos(self.folder)}
                self._listed_at = time.monotonic()
            return self._found


def _list_videos(folder: Path) -> list[Video]:
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in SUFFIXES:
            continue
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:  # deleted meanwhile
            continue
        if size is None:
            continue
        name = os.fsencode(path.relative_to(folder).as_posix())  # any bytes; displayed with replacement characters
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name.decode(errors="replace"))
        found.append(Video(hashlib.sha256(name).hexdigest()[:16], shown, path, size))
        if len(found) == MAX_VIDEOS:
            break
    return sorted(found, key=lambda video: natural(video.name))


def is_own_file(path: Path) -> bool:
    """Whether a path in a job's folder is a regular file, and neither it nor the folder a link to elsewhere."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and stat.S_ISDIR(path.parent.lstat().st_mode)
    except OSError:
        return False


def open_own_file(path: Path) -> int:
    """Open a file of a job's folder for reading, without following links.

    Args:
        path: of the file.

    Returns:
        Its descriptor.

    Raises:
        OSError: it is not there, or is not a regular file.
    """
    if not hasattr(os, "O_NOFOLLOW"):  # Windows
        if not is_own_file(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path.parent, flags | os.O_DIRECTORY)
    try:
        file = os.open(path.name, flags | os.O_NONBLOCK, dir_fd=folder)  # not waiting for a pipe's other end
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return file


UPLOAD, LABELS = "video", "labels.json"  # in a job's folder
UNFINISHED = "unfinished"  # beside an upload until it is a job
PROBES = 2  # videos probed at once: each may use `Limits.memory_bytes`


class Service:
    """Everything the routes use; the store, streams and workers exist within `opened`.

    Args:
        settings: options of `ballcast serve`.
        predictors: makes a predictor for each video and stream.
        sessions: opens a live session on an address; by default with one of them.
    """

    def __init__(
        self, settings: Settings, predictors: PredictorFactory, *, sessions: OpenSession | None = None
    ) -> None:
        self.settings, self.predictors = settings, predictors
        self.limits = settings.limits
        self.tokens = TokenStore(settings.data)
        self.auth = TokenAuth(settings.token, settings.limits, self.tokens)
        self.library = Library(settings.videos)
        self.upload_limit = ConcurrencyLimit(settings.limits)
        self.labels_limit = ConcurrencyLimit(settings.limits)
        self._reading_labels = threading.Lock()  # a file of 16 MiB takes hundreds of MB while it is read
        self._labels = lru_cache(maxsize=32)(self._parse_labels)  # of the latest files, until they change
        self._viewers: Counter[str] = Counter()  # by user
        self._counting = threading.Lock()
        self._probing = threading.Semaphore(PROBES)
        self.scheduler = LazyScheduler(predictors.scheduler)
        self._sessions = sessions or open_session(predictors, self.scheduler)
        self.ready = False  # while requests are served
        self.feeds = settings.data.absolute() / "feeds"  # event feeds and their pages
        self.reading_feeds = threading.BoundedSemaphore(2)  # processes that read feeds at once
        self._jobs = settings.data.absolute() / "jobs"  # absolute: the decoder process has another working directory

    @contextmanager
    def opened(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Lock the data folder, open the job store and run the workers until the end of the block."""
        self._jobs.mkdir(parents=True, exist_ok=True)
        self._jobs.chmod(0o700)  # uploads are for this user only, also those of earlier versions
        busy = f"{self.settings.data}: another server uses this folder; stop it, or give another with --data"
        with file_lock(self.settings.data / ".lock", busy):
            self.store = JobStore(self.settings.data / "jobs.sqlite")
            self._remove_partial_uploads()
            self.stream_store = StreamStore(self.settings, self._sessions, loop)
            self.workers = Workers(
                self.store, self.predictors, self.limits, loop, self.video_of, self.folder_of, self.settings.workers
            )
            self.workers.start()
            self.ready = True
            try:
                yield
            finally:
                self.close_channels()
                self.store.close()

    def close_channels(self) -> None:
        """Stop workers and streams, which ends the connections of their viewers."""
        self.ready = False
        self.workers.stop()
        self.stream_store.close()
        self.scheduler.close()

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams by name."""
        return self.stream_store.streams

    def job(self, job_id: str) -> Job:
        """The job with this id; raises RequestError 404 if there is none."""
        job = self.store.get(job_id)
        if job is None:
            raise RequestError(404, "there is no such job")
        return job

    def folder_of(self, job: Job) -> Path:
        """Folder of a job."""
        return self.folder(job.id)

    def folder(self, job_id: str) -> Path:
        """Folder of a job by its id, which must come from `Job.new_id` or the store, never from a request."""
        return self._jobs / job_id

    def probe(self, path: Path, name: str) -> VideoInfo:
        """Probe a video, at most `PROBES` at a time; raises RequestError 422 if it is no video or over the limits."""
        with self._probing:
            try:
                return decoder.probe(path, name, self.limits)
            except InputError as error:
                raise RequestError(422, str(error)) from None

    def video_of(self, job: Job) -> Path | None:
        """Path of the job's video; None: it is no longer there."""
        if job.library:
            video = self.library.get(job.library)
            return None if video is None else video.path
        path = self.folder_of(job) / UPLOAD
        return path if is_own_file(path) else None

    def read_labels(self, file: Path, video: str) -> tuple[Event, ...]:
        """Read uploaded labels, one file at a time; arguments and errors as of `read_actual`."""
        with self._reading_labels:
            now = file.stat()
            return self._labels(file, video, (now.st_ino, now.st_mtime_ns, now.st_size))

    def _parse_labels(self, file: Path, video: str, _: tuple[int, ...]) -> tuple[Event, ...]:
        return read_actual(file, video, entries=self.limits.labels_entries, events=self.limits.labels_events)

    def actual_of(self, job: Job) -> tuple[Event, ...] | None:
        """Actual events of the job's video, from its uploaded labels, else from those beside it; None: no labels."""
        given = self.folder_of(job) / LABELS
        try:
            if is_own_file(given):
                return self.read_labels(given, Path(job.name).name)
            video = self.video_of(job)
            with self._reading_labels:
                return actual_beside(video) if job.library and video is not None else None
        except InputError as error:
            raise RequestError(422, self.hide_folders(str(error).replace(str(given), "the labels"))) from None

    def actual_of_stream(self, name: str) -> tuple[Event, ...] | None:
        """Actual events of a stream that is a file, from the labels beside it; None: no labels."""
        path = Path(self.stream_store.config(name).address)
        try:
            with self._reading_labels:
                return actual_beside(path) if path.is_file() else None
        except InputError as error:
            message = str(error)
            for folder in (path.parent, path.parent.parent):
                message = message.replace(f"{folder}/", "")
            raise RequestError(422, message) from None

    def hide_folders(self, text: str) -> str:
        """Remove the server's folders from a message: viewers need not know where its files are."""
        folders = [self._jobs, self._jobs.parent]
        if self.library.folder is not None:
            folders += [self.library.folder, self.library.folder.parent]  # labels may lie above a video's folder
        for folder in folders:
            text = text.replace(f"{folder}/", "")
        return text

    def check_quota(self, user: str) -> None:
        """Raise RequestError if the user has too many jobs (429) or the disk is nearly full (507)."""
        require_space(self._jobs, 0, self.limits)
        active, total = self.store.count(user)
        if active >= self.limits.waiting_a_user:
            raise RequestError(
                429, f"you have {active} jobs that are queued or running; wait for some to end, or cancel them"
            )
        if total >= self.limits.kept_a_user:
            raise RequestError(429, f"you have {total} jobs; delete some")

    def cancel(self, job: Job) -> Job:
        """Cancel a job; raises RequestError 409 if it has ended."""
        if not self.store.end(job.id, "cancelled"):
            raise RequestError(409, f"the job has ended: it is {self.job(job.id).state}")
        job = self.job(job.id)
        self.workers.close_channel(job)
        self.workers.drop_ended()
        self.workers.wake()
        return job

    def delete(self, job: Job) -> None:
        """Delete a job, its upload and its results; the files first, so that it works on a full disk."""
        shutil.rmtree(self.folder_of(job), ignore_errors=True)
        if job.state in ACTIVE:
            self.store.end(job.id, "cancelled")
            self.workers.close_channel(self.job(job.id))
        self.store.remove(job.id)
        self.workers.drop_ended()
        self.workers.wake()

    def viewers(self) -> int:
        """Number of viewers of all jobs and streams."""
        with self._counting:
            return self._viewers.total()

    def add_viewer(self, user: str) -> Callable[[], None]:
        """Count a viewer of a job or stream; raises RequestError 429 or 503 if there are too many.

        Returns:
            A function that counts the viewer no longer.
        """

        def remove() -> None:
            with self._counting:
                self._viewers[user] -= 1
                self._viewers += Counter()  # drops users with none

        with self._counting:
            if self._viewers[user] >= self.limits.viewers_a_user:
                raise RequestError(429, f"you follow {self._viewers[user]} jobs and streams at once; close some")
            if self._viewers.total() >= self.limits.viewers:
                raise RequestError(503, "too many viewers at once; try again later", retry_s=30)
            self._viewers[user] += 1
        return remove

    def _remove_partial_uploads(self) -> None:
        """Remove the files of interrupted uploads, but no other folders, nor uploads whose database was lost."""
        known = {job.id for job in self.store.all()}
        for folder in self._jobs.iterdir():
            if not re.fullmatch(r"[0-9a-f]{16}", folder.name) or not folder.is_dir():
                continue
            if folder.name in known:
                (folder / UNFINISHED).unlink(missing_ok=True)
            elif (folder / UNFINISHED).exists():
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with suppress(OSError):  # not empty
                    folder.rmdir()

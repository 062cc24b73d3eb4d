"""The threads that work on jobs, and what they tell of it while they do.

While users wait for each other, each gets the computer for some seconds at a time: a job that is put aside keeps its
state and its decoder, and goes on at its next turn. So a video of three hours holds up nobody's clip.
"""

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast.core.events import Forecast
from ballcast.inference.rolling import require_window
from ballcast.inference.timeline import write_timeline, write_timeline_csv
from ballcast.web import decoder
from ballcast.web.jobs import ACTIVE, Job, JobStore
from ballcast.web.server_sent_events import Channel
from ballcast.web.settings import Engine, Limits

TIMELINE, CSV = "timeline.json", "timeline.csv"  # in a job's folder
RETRY_S = 5.0  # after a round that failed for a reason that is not its job's
_log = logging.getLogger("ballcast.web")


class RunningJob:
    """One job begun: its decoder, its state, and what came out so far."""

    def __init__(self, job: Job, video: Path, engine: Engine, limits: Limits, channel: Channel) -> None:
        self.job, self._channel = job, channel
        self._stack = ExitStack()
        self._frames = self._stack.enter_context(decoder.frames(video, job.name, limits))
        self._rolling = engine.new()
        self._timeline: list[Forecast] = []
        self.about = engine.about

    @property
    def done_ms(self) -> int:
        return self._rolling.frames * FRAME_MS

    def advance(self) -> bool:
        """The next frame of the video; False: there was none left."""
        frame: np.ndarray | None = next(self._frames, None)
        if frame is None:
            return False
        made = self._rolling.push(frame)
        if made is not None:
            self._timeline.append(made)
            self._channel.publish("anticipation", {"type": "anticipation", **made.to_json()})
        if self._rolling.frames % FPS == 0:
            self._channel.publish("progress", {"done_ms": self.done_ms, "total_ms": self.job.duration_ms}, state=True)
        return True

    def write(self, folder: Path) -> None:
        """The results, each whole or not there."""
        require_window(self._rolling.frames, self.job.name)
        write_timeline(folder / TIMELINE, self._timeline, {"video": self.job.name, **self.about})
        write_timeline_csv(folder / CSV, self._timeline)

    def close(self) -> None:
        self._stack.close()


@dataclass
class Workers:
    """Works on the jobs of `store` until `stop()`.

    engine: gives an anticipator a job. video_of: where a job's video lies (None: it is gone). folder_of: where its
    results go. count: threads.
    """

    store: JobStore
    engine: Engine
    limits: Limits
    loop: asyncio.AbstractEventLoop
    video_of: Callable[[Job], Path | None]
    folder_of: Callable[[Job], Path]
    count: int = 1
    _begun: dict[str, RunningJob] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _channels: dict[str, Channel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._run, name=f"worker-{i}", daemon=True) for i in range(self.count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Put everything aside; what was running is queued again by the next server."""
        self._stopping = True
        self._news.set()
        for thread in self._threads:
            thread.join(10)
        for work in self._begun.values():
            work.close()
        for channel in self._channels.values():
            channel.close()

    def look(self) -> None:
        """There may be something new to do, or something not to do any more."""
        self._news.set()

    def channel(self, job_id: str) -> Channel:
        """What a job that is not ended tells: anticipation, progress, state."""
        with self._lock:
            return self._channels.setdefault(job_id, Channel(self.loop, keep=None))

    @property
    def viewers(self) -> int:
        with self._lock:
            return sum(channel.viewers for channel in self._channels.values())

    def done_ms(self, job_id: str) -> int:
        """How much of the job's video is done, in its milliseconds."""
        work = self._begun.get(job_id)
        return 0 if work is None else work.done_ms

    def close_channel(self, job: Job) -> None:
        """Tell viewers how the job ended, and let them go."""
        with self._lock:
            channel = self._channels.pop(job.id, None)
        if channel is not None:
            channel.publish("state", {"state": job.state, "message": job.message}, state=True)
            channel.close()

    def _run(self) -> None:
        """Round after round. What goes wrong with a round itself (a full disk, mostly) is tried again later."""
        while not self._stopping:
            try:
                self.drop_ended()
                if not self._round():
                    self._news.wait(1)
                    self._news.clear()
            except Exception:
                if self._stopping:
                    return
                _log.exception("a worker could not go on; it tries again in %.0f s", RETRY_S)
                self._news.wait(RETRY_S)
                self._news.clear()

    def _round(self) -> bool:
        """One job's turn; False: there is nothing to do."""
        with self._lock:
            full = len(self._begun) >= self.limits.open_jobs
            job = self.store.take(busy=self._busy, only=self._begun.keys() if full else None)
            if job is None:
                return False
            self._busy.add(job.id)
        try:
            self._turn(job)
        except Exception as error:
            self._close(job.id)  # if its end cannot be written down either, it is begun again and not half done
            if self._stopping:  # what was cut off by that is queued again, not failed
                return True
            if not isinstance(error, BallcastError):
                _log.exception("job %s", job.id)
            self._end(job, "failed", self._why(job, error))
        finally:
            with self._lock:
                self._busy.discard(job.id)
        return True

    def _why(self, job: Job, error: Exception) -> str:
        """What went wrong, for those who watch: without the server's folders."""
        if isinstance(error, NoSpace):
            return f"{job.name}: the server's disk is full; delete videos that are no longer needed, then try again"
        if isinstance(error, BallcastError):
            return str(error).replace(f"{self.folder_of(job)}/", "")
        return f"{job.name}: an error in the server; whoever runs it finds more in its log"

    def _turn(self, job: Job) -> None:
        """Go on with the job until it ends, is cancelled, or another user has waited for long enough."""
        work = self._begun.get(job.id) or self._begin(job)
        until = time.monotonic() + self.limits.slice_s
        while work.advance():
            now = self.store.get(job.id)
            if now is None or now.state not in ACTIVE:
                self._end(job, "cancelled")
                return
            if self._stopping or (time.monotonic() > until and self.store.others_wait(job.user)):
                return
        now = self.store.get(job.id)
        if now is not None and now.state in ACTIVE:
            work.write(self.folder_of(job))
        self._end(job, "done")

    def _begin(self, job: Job) -> RunningJob:
        video = self.video_of(job)
        if video is None:
            raise InputError(f"{job.name}: is no longer there")
        channel = self.channel(job.id)
        channel.publish("state", {"state": "running", "message": ""}, state=True)
        work = RunningJob(job, video, self.engine, self.limits, channel)
        self._begun[job.id] = work
        return work

    def _end(self, job: Job, state: str, message: str = "") -> None:
        self.store.end(job.id, state, message)  # type: ignore[arg-type]
        self._close(job.id)
        now = self.store.get(job.id)
        if now is None:  # it was deleted while its results were written
            shutil.rmtree(self.folder_of(job), ignore_errors=True)
        self.close_channel(now or job)

    def _close(self, job_id: str) -> None:
        work = self._begun.pop(job_id, None)
        if work is not None:
            work.close()

    def drop_ended(self) -> None:
        """Close what was cancelled or deleted while it was put aside: it keeps a decoder and a place."""
        for job_id in list(self._begun):
            now = self.store.get(job_id)
            if now is not None and now.state in ACTIVE:
                continue
            with self._lock:  # a job that has ended is taken by nobody; one at work is ended by who works on it
                idle = job_id not in self._busy
            if idle:
                self._close(job_id)

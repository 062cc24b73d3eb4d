"""Threads that process jobs and publish their events.

While several users have jobs, each user gets turns of `Limits.slice_s`: a suspended job keeps its state and its decoder
process, and continues at its next turn. So a video of three hours does not block another user's clip.
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

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast.core.events import Forecast, Gap
from ballcast.inference.timeline import write_timeline, write_timeline_csv
from ballcast.inference.video_predictor import VideoPredictor
from ballcast_server.web import decoder
from ballcast_server.web.jobs import ACTIVE, Job, JobStore
from ballcast_server.web.server_sent_events import Channel
from ballcast_server.web.settings import Limits, PredictorFactory

TIMELINE, CSV = "timeline.json", "timeline.csv"  # in a job's folder
KEPT = {"state": 1, "progress": 1, "result": None}  # events that a new viewer gets first
RETRY_S = 5.0  # pause after an error that no job caused
_log = logging.getLogger("ballcast.web")


class RunningJob:
    """A started job: its decoder process, its anticipator and its forecasts so far."""

    def __init__(self, job: Job, video: Path, predictors: PredictorFactory, limits: Limits, channel: Channel) -> None:
        self.job, self._channel = job, channel
        self._stack = ExitStack()
        predictor = predictors.new()
        how = {"colour": predictor.colour, "any_video": predictors.any_video}
        self._items = self._stack.enter_context(decoder.frames(video, job.name, limits, **how))
        self._along = VideoPredictor(predictor, on_gap=lambda gap: self._publish("gap", gap))
        self._timeline: list[Forecast] = []
        self.about = predictors.about

    @property
    def done_ms(self) -> int:
        """Length of the video processed so far."""
        return self._along.done * FRAME_MS

    def advance(self) -> bool:
        """Process the next frame of the video; returns False at its end."""
        item = next(self._items, None)
        if item is None:
            return False
        forecast = self._along.push(item)
        if forecast is not None:
            self._timeline.append(forecast)
            self._publish("anticipation", forecast)
        if self._along.done % FPS == 0:
            self._channel.publish("progress", {"done_ms": self.done_ms, "total_ms": self.job.duration_ms})
        return True

    def _publish(self, kind: str, item: Forecast | Gap) -> None:
        self._channel.publish(kind, {"type": kind, **item.to_json()}, keep_as="result")

    def write(self, folder: Path) -> None:
        """Write the results, each atomically."""
        self._along.end(self.job.name)
        about = {"video": self.job.name, **self.about}
        write_timeline(folder / TIMELINE, self._timeline, about, self._along.gaps)
        write_timeline_csv(folder / CSV, self._timeline)

    def close(self) -> None:
        """End the decoder process."""
        self._stack.close()


@dataclass
class Workers:
    """Threads that process the jobs of `store` until `stop()`.

    Args:
        store: the jobs.
        predictors: makes the predictor of a job.
        limits: bounds on turns, open jobs and decoding.
        loop: event loop of the viewers.
        video_of: path of a job's video; None: it is no longer there.
        folder_of: folder of a job's results.
        count: number of threads.
    """

    store: JobStore
    predictors: PredictorFactory
    limits: Limits
    loop: asyncio.AbstractEventLoop
    video_of: Callable[[Job], Path | None]
    folder_of: Callable[[Job], Path]
    count: int = 1
    _started: dict[str, RunningJob] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _channels: dict[str, Channel] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wakeup: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start the threads."""
        self._threads = [threading.Thread(target=self._run, name=f"worker-{i}", daemon=True) for i in range(self.count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; running jobs are queued again when the server next starts."""
        self._stopping = True
        self._wakeup.set()
        for thread in self._threads:
            thread.join(10)
        for work in self._started.values():
            work.close()
        for channel in self._channels.values():
            channel.close()

    def wake(self) -> None:
        """Wake idle threads after a change of the job store."""
        self._wakeup.set()

    def channel(self, job_id: str) -> Channel:
        """Event channel of an active job: anticipation, progress, state."""
        with self._lock:
            return self._channels.setdefault(job_id, Channel(self.loop, KEPT))

    def done_ms(self, job_id: str) -> int:
        """Length of the job's video processed so far."""
        work = self._started.get(job_id)
        return 0 if work is None else work.done_ms

    def close_channel(self, job: Job) -> None:
        """Send the job's last state to its viewers, and end their connections."""
        with self._lock:
            channel = self._channels.pop(job.id, None)
        if channel is not None:
            channel.publish("state", {"state": job.state, "message": job.message})
            channel.close()

    def _run(self) -> None:
        """Loop of a thread. Errors outside a job (mostly a full disk) are logged and tried again later."""
        while not self._stopping:
            try:
                self.drop_ended()
                if not self._run_next():
                    self._wakeup.wait(1)
                    self._wakeup.clear()
            except Exception:
                if self._stopping:
                    return
                _log.exception("worker failed; trying again in %.0f s", RETRY_S)
                self._wakeup.wait(RETRY_S)
                self._wakeup.clear()

    def _run_next(self) -> bool:
        """Give one job a turn; returns False if there is none."""
        with self._lock:
            taken = self._started.keys() | self._busy  # a busy job may not have started yet
            full = len(taken) >= self.limits.open_jobs
            job = self.store.take(busy=self._busy, only=self._started.keys() if full else None)
            if job is None:
                return False
            self._busy.add(job.id)
        try:
            self._turn(job)
        except Exception as error:
            self._close(job.id)  # if its end cannot be stored either, it starts again from the beginning
            if self._stopping:  # an interrupted job is queued again, not failed
                return True
            if not isinstance(error, BallcastError):
                _log.exception("job %s failed", job.id)
            self._end(job, "failed", self._failure_message(job, error))
        finally:
            with self._lock:
                self._busy.discard(job.id)
        return True

    def _failure_message(self, job: Job, error: Exception) -> str:
        """The error as viewers see it: without the server's folders."""
        if isinstance(error, NoSpace):
            return f"{job.name}: the server's disk is full; delete videos that are no longer needed, then try again"
        if isinstance(error, BallcastError):
            return str(error).replace(f"{self.folder_of(job)}/", "")
        return f"{job.name}: internal server error; see the server's log"

    def _turn(self, job: Job) -> None:
        """Process the job until it ends, is cancelled, or its turn is over and another user waits."""
        work = self._started.get(job.id) or self._start_job(job)
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

    def _start_job(self, job: Job) -> RunningJob:
        video = self.video_of(job)
        if video is None:
            raise InputError(f"{job.name}: the video is no longer there")
        channel = self.channel(job.id)
        channel.publish("state", {"state": "running", "message": ""})
        work = RunningJob(job, video, self.predictors, self.limits, channel)
        self._started[job.id] = work
        return work

    def _end(self, job: Job, state: str, message: str = "") -> None:
        self.store.end(job.id, state, message)  # type: ignore[arg-type]
        self._close(job.id)
        now = self.store.get(job.id)
        if now is None:  # deleted while its results were written
            shutil.rmtree(self.folder_of(job), ignore_errors=True)
        self.close_channel(now or job)

    def _close(self, job_id: str) -> None:
        work = self._started.pop(job_id, None)
        if work is not None:
            work.close()

    def drop_ended(self) -> None:
        """Close suspended jobs that were cancelled or deleted: each holds a decoder process."""
        for job_id in list(self._started):
            now = self.store.get(job_id)
            if now is not None and now.state in ACTIVE:
                continue
            with self._lock:  # an ended job is not taken again; a busy one is closed by its thread
                idle = job_id not in self._busy
            if idle:
                self._close(job_id)

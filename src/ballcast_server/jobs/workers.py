"""Threads that process jobs and publish their events.

While several users have jobs, each user gets turns of `Limits.slice_s`: a suspended job keeps its state and its decoder
process, and continues at its next turn. So a video of three hours does not block another user's clip.
"""

import asyncio
import logging
import shutil
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast.core.events import Forecast, Gap
from ballcast.inference.timeline import write_timeline, write_timeline_csv
from ballcast.inference.video_predictor import VideoPredictor
from ballcast_server.confined import decoder
from ballcast_server.jobs.jobs import CSV, TIMELINE, Jobs
from ballcast_server.jobs.store import ACTIVE, Job, State
from ballcast_server.predictors import PredictorFactory
from ballcast_server.server_sent_events import Channel
from ballcast_server.settings import Limits, RequestError

KEPT = {"state": 1, "progress": 1, "result": None}  # events that a new viewer gets first
RETRY_S = 5.0  # pause after an error that no job caused
_log = logging.getLogger("ballcast.web")


class RunningJob:
    """A started job: its decoder process, its anticipator and its forecasts so far."""

    def __init__(self, job: Job, video: Path, predictors: PredictorFactory, limits: Limits, channel: Channel) -> None:
        self.job = job
        self._channel = channel
        self._stack = ExitStack()
        predictor = predictors.new()
        frames = decoder.frames(video, job.name, limits, colour=predictor.colour, any_video=predictors.any_video)
        self._items = self._stack.enter_context(frames)
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


class Workers:
    """Threads that process jobs until `stop()`.

    Args:
        jobs: the jobs.
        predictors: makes the predictor of a job.
        limits: bounds on turns, open jobs and decoding.
        loop: event loop of the viewers.
        count: number of threads.
    """

    def __init__(
        self, jobs: Jobs, predictors: PredictorFactory, limits: Limits, loop: asyncio.AbstractEventLoop, count: int = 1
    ) -> None:
        self._jobs = jobs
        self._predictors = predictors
        self._limits = limits
        self._loop = loop
        self._started: dict[str, RunningJob] = {}
        self._busy: set[str] = set()  # ids of the jobs that a thread holds
        self._channels: dict[str, Channel] = {}
        self._lock = threading.Lock()
        self._wakeup = threading.Event()
        self._stopping = False
        self._threads = [threading.Thread(target=self._run, name=f"worker-{i}", daemon=True) for i in range(count)]

    def start(self) -> None:
        """Start the threads."""
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

    def submit(self, job: Job) -> Job:
        """Queue a job; returns it as stored."""
        self._jobs.folder(job.id).mkdir(exist_ok=True)
        job = self._jobs.store.add(job)
        self._wakeup.set()
        return job

    def cancel(self, job: Job) -> Job:
        """Cancel a job; raises RequestError 409 if it has ended."""
        if not self._jobs.store.end(job.id, "cancelled"):
            raise RequestError(409, f"the job has ended: it is {self._jobs.get(job.id).state}")
        job = self._jobs.get(job.id)
        self.close_channel(job)
        self._drop_ended()
        self._wakeup.set()
        return job

    def delete(self, job: Job) -> None:
        """Delete a job, its upload and its results; the files first, so that it works on a full disk."""
        shutil.rmtree(self._jobs.folder(job.id), ignore_errors=True)
        if job.state in ACTIVE:
            self._jobs.store.end(job.id, "cancelled")
            self.close_channel(self._jobs.get(job.id))
        self._jobs.store.remove(job.id)
        self._drop_ended()
        self._wakeup.set()

    def channel(self, job_id: str) -> Channel:
        """Event channel of an active job: anticipation, progress, state."""
        with self._lock:
            return self._channels.setdefault(job_id, Channel(self._loop, KEPT))

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
                self._drop_ended()
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
            full = len(taken) >= self._limits.open_jobs
            job = self._jobs.store.take(busy=self._busy, only=self._started.keys() if full else None)
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
            return str(error).replace(f"{self._jobs.folder(job.id)}/", "")
        return f"{job.name}: internal server error; see the server's log"

    def _turn(self, job: Job) -> None:
        """Process the job until it ends, is cancelled, or its turn is over and another user waits."""
        work = self._started.get(job.id) or self._start_job(job)
        until = time.monotonic() + self._limits.slice_s
        while work.advance():
            now = self._jobs.store.get(job.id)
            if now is None or now.state not in ACTIVE:
                self._end(job, "cancelled")
                return
            if self._stopping or (time.monotonic() > until and self._jobs.store.others_wait(job.user)):
                return
        now = self._jobs.store.get(job.id)
        if now is not None and now.state in ACTIVE:
            work.write(self._jobs.folder(job.id))
        self._end(job, "done")

    def _start_job(self, job: Job) -> RunningJob:
        video = self._jobs.video_of(job)
        if video is None:
            raise InputError(f"{job.name}: the video is no longer there")
        channel = self.channel(job.id)
        channel.publish("state", {"state": "running", "message": ""})
        work = RunningJob(job, video, self._predictors, self._limits, channel)
        self._started[job.id] = work
        return work

    def _end(self, job: Job, state: State, message: str = "") -> None:
        self._jobs.store.end(job.id, state, message)
        self._close(job.id)
        now = self._jobs.store.get(job.id)
        if now is None:  # deleted while its results were written
            shutil.rmtree(self._jobs.folder(job.id), ignore_errors=True)
        self.close_channel(now or job)

    def _close(self, job_id: str) -> None:
        work = self._started.pop(job_id, None)
        if work is not None:
            work.close()

    def _drop_ended(self) -> None:
        """Close suspended jobs that were cancelled or deleted: each holds a decoder process."""
        for job_id in list(self._started):
            now = self._jobs.store.get(job_id)
            if now is not None and now.state in ACTIVE:
                continue
            with self._lock:  # an ended job is not taken again; a busy one is closed by its thread
                idle = job_id not in self._busy
            if idle:
                self._close(job_id)

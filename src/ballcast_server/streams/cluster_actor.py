"""An actor that follows streams on a machine of a Ray cluster, with one scheduler; see `cluster.py`.

`Follower` runs there; `RemoteFollower` asks it from here.
"""

import os
import queue
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ballcast.api import load
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.util import cores
from ballcast.live.broadcast import Subscription
from ballcast.live.reader import PreviewOptions
from ballcast.live.session import LiveSession
from ballcast.live.status import Record, Status, wall_ms
from ballcast.video.sources import SourceOptions
from ballcast_server.settings import Limits
from ballcast_server.streams.decoder import open_stream
from ballcast_server.streams.ring import Ring, ring_of
from ballcast_server.streams.scheduler import Load, Scheduler

if TYPE_CHECKING:
    from ballcast_server.streams.cluster import ClusterSession

CAPACITY = 256  # records of a stream that may wait, and of all streams
POLL_S = 0.5  # the longest that an actor waits for a record before it answers: so soon a new stream begins
SILENT_S = 10.0  # without an answer of an actor, until its streams are shown as waiting
AGAIN_S = 1.0  # until an actor whose machine died is asked again
CLIP_S = 60.0  # to bring a clip
ENDED_S = 60.0  # that the packets of a stream that ended are kept: clips may still be due
NOT_READY = "no machine of the cluster is ready yet: one needs a free core (and GPU), and loads the model"


@dataclass(frozen=True)
class StreamOrder:
    """A stream to follow.

    Args:
        address: of the stream.
        ring_s: seconds of its packets to keep; None: none.
        source: how it is opened.
        previews: size and rate of its previews; None: none are sent.
        limits: on the pixels, memory and time that it takes.
    """

    address: str
    ring_s: float | None = None
    source: SourceOptions = field(default_factory=SourceOptions)
    previews: PreviewOptions | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Item:
    """A record of a stream. zero_s: its time 0 on the clock of its packets. newest_s: of the newest of these."""

    key: str
    record: Record
    zero_s: float | None
    newest_s: float


class Follower:
    """The actor. It follows the streams that the last call named, and keeps their records until they are asked for."""

    def __init__(self, model: dict[str, Any], every_ms: int, emit: EmitConfig | None, any_video: bool) -> None:
        self._every_ms = every_ms
        self._emit = emit
        self._any_video = any_video
        self._fault = ""
        self._sessions: dict[str, LiveSession | None] = {}  # None: it could not be opened
        self._ended: dict[str, tuple[Ring, float]] = {}  # packets of streams that ended, and until when they are kept
        self._items: queue.Queue[Item] = queue.Queue(CAPACITY)
        os.environ["OMP_NUM_THREADS"] = str(cores())  # Ray sets 1, for the one core that is asked for
        try:
            self._scheduler = Scheduler(load(**model).new_runtime, every_ms=every_ms)
        except Exception as error:  # raised here, it would look as if the machine were gone
            self._fault = str(error) if isinstance(error, BallcastError) else f"{type(error).__name__}: {error}"

    def fault(self) -> str:
        """Why it cannot follow streams; "": it can."""
        return self._fault

    def follow(self, orders: dict[str, StreamOrder], wait_s: float) -> tuple[list[Item], Load, set[str]]:
        """Follow these streams and no others.

        Args:
            orders: the streams by key.
            wait_s: longest time to wait for a record.

        Returns:
            The records that came, what the scheduler does, and the streams it has no room for.
        """
        for key in self._sessions.keys() - orders.keys():
            if (session := self._sessions.pop(key)) is not None:
                if (ring := ring_of(session.source)) is not None:
                    self._ended[key] = ring, time.monotonic() + ENDED_S
                threading.Thread(target=session.close, daemon=True).start()
        for key in orders.keys() - self._sessions.keys():
            self._sessions[key] = self._begin(key, orders[key])
        self._ended = {key: kept for key, kept in self._ended.items() if kept[1] > time.monotonic()}
        items: list[Item] = []
        end = time.monotonic() + wait_s
        while len(items) < CAPACITY:
            try:
                items.append(self._items.get(timeout=0 if items else max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
        running = {key: session for key, session in self._sessions.items() if session is not None and session.running}
        return items, self._scheduler.load, {key for key, session in running.items() if session.held}

    def clip(self, key: str, begin_s: float, end_s: float) -> bytes:
        """The packets of these seconds as mp4; b"": there are none."""
        session = self._sessions.get(key)
        ring, _ = self._ended.get(key, (None, 0.0)) if session is None else (ring_of(session.source), 0.0)
        if ring is None:
            return b""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "clip.mp4"
            return path.read_bytes() if ring.write(path, begin_s, end_s) else b""

    def _begin(self, key: str, order: StreamOrder) -> LiveSession | None:
        previews = order.previews or PreviewOptions()
        try:
            source = open_stream(
                order.address,
                colour=self._scheduler.colour,
                options=order.source,
                limits=order.limits,
                any_video=self._any_video,
                previews=previews,
                ring_s=order.ring_s,
            )
        except BallcastError as error:
            status = Status("error", str(error), 0, wall_ms(), self._every_ms)
            item = Item(key, status, None, -1.0)  # not put here: only `follow`, which waits for this, empties the queue
            threading.Thread(target=self._items.put, args=(item,), daemon=True).start()
            return None
        session = self._scheduler.session(source, emit=self._emit, any_video=self._any_video, previews=previews)
        records = session.subscribe(previews=order.previews is not None, capacity=CAPACITY)
        session.start()
        threading.Thread(target=self._relay, args=(key, records, session), daemon=True).start()
        return session

    def _relay(self, key: str, records: Subscription[Record], session: LiveSession) -> None:
        """Queue a session's records; where they are not fetched, it waits here, and the listener loses the oldest."""
        ring = ring_of(session.source)
        for record in records:
            newest_s = -1.0 if ring is None else ring.newest_s
            self._items.put(Item(key, record, session.timestamp(0), newest_s))


class RemoteFollower:
    """An actor seen from here, its sessions, and the thread that brings their records. All calls of Ray wait there."""

    def __init__(self, ray: Any, actor: Any, args: tuple[Any, ...]) -> None:
        self._ray = ray
        self._class = actor
        self._args = args
        self.sessions: dict[str, ClusterSession] = {}
        self.load = Load()
        self._actor: Any = None
        self._closed = threading.Event()
        self._calls = threading.Lock()  # held while another thread asks for a clip: no end of Ray meanwhile
        self._thread = threading.Thread(target=self._run, name="cluster-follower", daemon=True)

    @property
    def over(self) -> bool:
        """Whether it follows nothing any more: it was closed, or cannot."""
        return self._closed.is_set()

    def add(self, session: "ClusterSession") -> None:
        """Follow a session from the next call on."""
        session.follower = self
        self.sessions[session.key] = session
        if self._thread.ident is None:
            self._thread.start()

    def clip(self, key: str, begin_s: float, end_s: float) -> bytes:
        """A clip as mp4; b"": there is none."""
        with self._calls:
            if self._actor is None or self._closed.is_set():
                return b""
            content = self._answer(self._actor.clip.remote(key, begin_s, end_s), most_s=CLIP_S)
            return bytes(content or b"")

    def close(self) -> None:
        """End the actor and its sessions, and wait for the threads that ask it."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()
        for session in list(self.sessions.values()):
            session.close()
        with self._calls:
            if self._actor is not None:
                self._ray.kill(self._actor)

    def _run(self) -> None:
        gone = False
        try:
            self._actor = self._class.remote(*self._args)
            while not self._closed.is_set():
                try:
                    if fault := self._answer(self._actor.fault.remote(), NOT_READY):
                        raise InputError(fault)
                    while not self._closed.is_set():
                        self._bring()
                        gone = False
                except self._ray.exceptions.RayActorError:
                    if not gone:  # the first time; the actor may take a while to start
                        self._for_all(lambda session: session.lost())
                    gone = True
                    self._closed.wait(AGAIN_S)
        except Exception as error:  # the model cannot be opened there, or the cluster as a whole is gone
            cause = str(getattr(error, "cause", None) or error)
            self._closed.set()
            self._for_all(lambda session: session.publish("error", cause))
            self.sessions.clear()
            self._actor = None  # Ray ends an actor that nobody knows

    def _bring(self) -> None:
        """One call: the actor follows these sessions and no others, and gives the records that came."""
        orders = {key: session.order for key, session in list(self.sessions.items())}
        answer = self._answer(self._actor.follow.remote(orders, POLL_S), "the machine that follows it does not answer")
        if answer is None:
            return
        items, self.load, held = answer
        for item in items:
            session = self.sessions.get(item.key)
            if session is not None:
                session.held = item.key in held
                session.take(item)
                if not session.running:
                    self.sessions.pop(item.key, None)
        self._for_all(lambda session: setattr(session, "held", session.key in held))

    def _answer(self, reference: Any, silent: str = "", most_s: float = float("inf")) -> Any:
        """The answer of a call; None: closed, or none within `most_s`. silent: what the sessions say without one."""
        began = time.monotonic()
        noted = not silent
        while not self._closed.is_set() and time.monotonic() - began < most_s:
            try:
                return self._ray.get(reference, timeout=1.0)
            except self._ray.exceptions.GetTimeoutError:
                if not noted and time.monotonic() - began > SILENT_S:
                    noted = True
                    self._for_all(lambda session: session.publish("waiting", silent))
        return None

    def _for_all(self, do: Any) -> None:
        for session in list(self.sessions.values()):
            do(session)

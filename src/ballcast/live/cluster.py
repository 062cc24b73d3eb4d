"""Sessions on streams that the machines of a Ray cluster follow.

    with ClusterSessions("10.0.0.1:6379") as cluster:
        session = cluster.session("rtsp://camera/1")  # used like a `LiveSession`; as many as you like
        with session.subscribe() as records, session:
            for record in records:
                ...

One actor a machine follows some of the streams, with one scheduler. Where a machine dies, Ray starts its actor on
another, and the streams begin anew there: a status "reconnecting" says so, and the clock of a stream goes on by the
time that passed. Every machine must reach the streams, and see the model under its path.
"""

import secrets
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.cluster import ray_cluster
from ballcast.core.errors import InputError
from ballcast.core.files import replacing
from ballcast.live.broadcast import Broadcast, Subscription
from ballcast.live.cluster_actor import Follower, Item, StreamOrder
from ballcast.live.scheduler import Load
from ballcast.live.status import LAST, LiveForecast, Preview, Record, State, Status, wall_ms
from ballcast.video.addresses import is_stream, shown

POLL_S = 0.5  # the longest that an actor waits for a record before it answers: so soon a new stream begins
SILENT_S = 10.0  # without an answer of an actor, until its streams are shown as waiting
AGAIN_S = 1.0  # until an actor whose machine died is asked again
CLIP_S = 60.0  # to bring a clip
NOT_READY = "no machine of the cluster is ready yet: one needs a free core (and GPU), and loads the model"


class ClusterSession:
    """A stream that is followed on the cluster; what `LiveSession` has for its users. Made by `ClusterSessions`."""

    def __init__(self, owner: "ClusterSessions", order: StreamOrder, every_ms: int) -> None:
        self.key, self.order, self.name = secrets.token_hex(8), order, shown(order.address)
        self.error: BaseException | None = None  # set when the session ends in state "error"
        self.held = False  # its machine has no room for it
        self.ring = ClusterRing(self) if order.ring_s is not None else None
        self.machine: _Machine | None = None
        self._owner, self._broadcast = owner, Broadcast()
        self._status = Status("opening", f"opening {self.name}", 0, wall_ms(), every_ms)
        self._before = self._status  # what the machines that died had counted
        self._offset_ms = 0  # of the machine's clock, which began anew
        self._last = time.monotonic()  # when the last record came
        self._zero_s: float | None = None  # the machine's time 0 on the clock of the packets
        self._over = threading.Event()
        self._changing = threading.Lock()  # of the status: its machine's thread and `close` may write it at once
        self._started = False

    def start(self) -> "ClusterSession":
        """Have a machine follow the stream; returns at once."""
        self._started = True
        self._broadcast.send(self._status)
        self._owner.begin(self)
        return self

    def subscribe(self, *, previews: bool = False, room: int = 64) -> Subscription:
        """See `LiveSession.subscribe`."""
        return self._broadcast.subscribe(previews=previews, room=room)

    @property
    def status(self) -> Status:
        """The latest status."""
        return self._status

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._started and not self._over.is_set()

    def timestamp(self, at_ms: int) -> float | None:
        """See `LiveSession.timestamp`."""
        return None if self._zero_s is None else self._zero_s + (at_ms - self._offset_ms) / 1000

    def close(self) -> None:
        """Stop; does not wait for the machine."""
        self.publish("stopped", "stopped")  # first: what is over is not begun any more
        self._owner.end(self)

    def __enter__(self) -> "ClusterSession":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --------------------------------------------------------------------------------------- called by its machine

    def take(self, item: Item) -> None:
        """Send a record of the machine to the listeners, on this session's clock and with its counts."""
        record, self._last = self._shifted(item.record), time.monotonic()
        self._zero_s = item.zero_s
        if self.ring is not None:
            self.ring.newest_s = item.newest_s
        if isinstance(record, Status):
            before = self._before
            counts = {what: getattr(record, what) + getattr(before, what) for what in ("dropped", "gaps", "reconnects")}
            self._send(replace(record, **counts))
        else:
            with self._changing:
                if not self._over.is_set():
                    self._status = replace(self._status, at_ms=getattr(record, "at_ms", self._status.at_ms))
                    self._broadcast.send(record)

    def lost(self) -> None:
        """The machine died: the stream begins anew on another."""
        if is_stream(self.order.address):  # a file begins at its own time 0
            self._offset_ms = self._status.at_ms + round(1000 * (time.monotonic() - self._last))
        self._zero_s, self.held = None, False
        self._before = replace(self._status, reconnects=self._status.reconnects + 1)
        self._status = self._before
        self.publish("reconnecting", "the machine that followed it is gone; it begins anew on another")

    def publish(self, state: State, message: str) -> None:
        """Send a status of this side."""
        text = message if state == "stopped" else f"{self.name}: {message.removeprefix(f'{self.name}: ')}"
        self._send(replace(self._status, state=state, message=text, wall_ms=wall_ms(), behind_ms=0, busy=0.0))

    def _send(self, status: Status) -> None:
        with self._changing:
            if self._over.is_set():
                return
            self._status = status
            if status.state in LAST:
                self.error = InputError(status.message) if status.state == "error" else None
                self._over.set()
            self._broadcast.send(status)

    def _shifted(self, record: Record) -> Record:
        """A record of the machine on this session's clock."""
        by = self._offset_ms
        if isinstance(record, LiveForecast):
            made = record.anticipation
            moved = tuple(replace(p, position_ms=p.position_ms + by) for p in made.predictions)
            return replace(record, anticipation=replace(made, at_ms=made.at_ms + by, predictions=moved))
        return replace(record, at_ms=record.at_ms + by) if isinstance(record, Preview | Status) else record


class ClusterRing:
    """The latest packets of a stream, on the machine that follows it; see `PacketRing`."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self.newest_s = -1.0  # as of the last record

    def write(self, path: Path, begin_s: float, end_s: float) -> bool:
        """Write the packets of these seconds to a file here; False: there are none, or their machine is gone."""
        machine = self._session.machine
        content = b"" if machine is None else machine.clip(self._session.key, begin_s, end_s)
        if content:
            with replacing(path) as new:
                new.write_bytes(content)
        return bool(content)


class ClusterSessions:
    """The streams that a cluster follows for this process, from entering the `with` block to its end.

    Args:
        cluster: address of a running cluster; None: Ray on this machine.
        model: arguments of `open_model`; by default the embedded model.
        every_ms, emit: as of a `RollingAnticipator`.
        any_video: forecast also where no football pitch is seen.
    """

    def __init__(
        self,
        cluster: str | None,
        *,
        model: dict[str, Any] | None = None,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        any_video: bool = True,
    ) -> None:
        self._cluster, self._every_ms = cluster, every_ms
        self._actor_args = (model or {}, every_ms, emit, any_video)
        self._on_gpu = (model or {}).get("device") == "cuda"
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._machines: list[_Machine] = []

    def __enter__(self) -> "ClusterSessions":
        self._ray = self._stack.enter_context(ray_cluster(self._cluster))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, address: str, *, ring_s: float | None = None, **how: Any) -> ClusterSession:
        """A session on a stream, not started.

        Args:
            address: of the stream.
            ring_s: seconds of its packets that the machine keeps for clips; None: none.
            how: further arguments of `open_source`, and of `LiveSession` those that begin with "preview_".
        """
        return ClusterSession(self, StreamOrder(address, ring_s, how), self._every_ms)

    @property
    def load(self) -> Load:
        """What all machines do together; busy: the busiest."""
        with self._lock:
            loads = [machine.load for machine in self._machines]
        sums = {what: sum(getattr(load, what) for load in loads) for what in Load.__dataclass_fields__}
        return Load(**sums | {"busy": max((load.busy for load in loads), default=0.0)})

    def close(self) -> None:
        """End all sessions and actors, then the connection: a thread that still asks Ray would abort the process."""
        with self._lock:
            machines, self._machines = self._machines, []
        for machine in machines:
            machine.close()
        self._stack.close()

    def begin(self, session: ClusterSession) -> None:
        """Give a session to the machine with the fewest; to a new one while there are more machines than actors."""
        with self._lock:
            if session.status.state in LAST:  # closed before it was begun
                return
            self._machines = [machine for machine in self._machines if not machine.over]
            fewest = min(self._machines, key=lambda machine: len(machine.sessions), default=None)
            if fewest is None or (fewest.sessions and len(self._machines) < self._count()):
                actor = self._ray.remote(Follower).options(
                    num_cpus=1,
                    num_gpus=1 if self._on_gpu else 0,
                    max_restarts=-1,
                    max_concurrency=4,  # one call brings records, others clips
                    scheduling_strategy="SPREAD",
                )
                fewest = _Machine(self._ray, actor, self._actor_args)
                self._machines.append(fewest)
            fewest.add(session)
            if fewest.over:  # it failed meanwhile, perhaps after it had ended its sessions
                session.publish("error", "the machine that was to follow it has failed; start it again")

    def end(self, session: ClusterSession) -> None:
        """Have a session's machine end it."""
        with self._lock:
            if session.machine is not None:
                session.machine.sessions.pop(session.key, None)

    def _count(self) -> int:
        """Machines that have a core for an actor, and a GPU if it needs one."""
        needed = ("CPU", "GPU") if self._on_gpu else ("CPU",)
        nodes = self._ray.nodes()
        return sum(node["Alive"] and all(node["Resources"].get(what, 0) >= 1 for what in needed) for node in nodes)


class _Machine:
    """An actor, the sessions it follows, and the thread that brings their records. All calls of Ray wait there."""

    def __init__(self, ray: Any, actor: Any, args: tuple[Any, ...]) -> None:
        self._ray, self._class, self._args = ray, actor, args
        self.sessions: dict[str, ClusterSession] = {}
        self.load = Load(0, 0, 0, 0.0, 0, 0)
        self._actor: Any = None
        self._closed = threading.Event()
        self._calls = threading.Lock()  # held while another thread asks for a clip: no end of Ray meanwhile
        self._thread = threading.Thread(target=self._run, name="cluster-machine", daemon=True)

    @property
    def over(self) -> bool:
        """Whether it follows nothing any more: it was closed, or cannot."""
        return self._closed.is_set()

    def add(self, session: ClusterSession) -> None:
        """Follow a session from the next call on."""
        session.machine, self.sessions[session.key] = self, session
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
        began, noted = time.monotonic(), not silent
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

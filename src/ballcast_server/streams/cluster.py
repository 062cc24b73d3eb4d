"""Sessions on streams that the machines of a Ray cluster follow.

    with ClusterSessions("10.0.0.1:6379") as cluster:
        session = cluster.session("rtsp://camera/1")  # used like a `LiveSession`; as many as you like
        with session.subscribe() as records, session:
            for record in records:
                ...

One actor a machine follows some of the streams, with one scheduler; several where one process is not enough, since
Python runs one thread at a time. Where a machine dies, Ray starts its actors on another, and the streams start again
there: a status "reconnecting" says so, and the clock of a stream advances by the time that passed. Every machine must
reach the streams, and see the model under its path.
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
from ballcast.live.broadcast import SessionBroadcast, Subscription
from ballcast.live.reader import PreviewOptions
from ballcast.live.status import LAST, LiveForecast, Preview, Record, State, Status, wall_ms
from ballcast.video.addresses import is_stream, shown
from ballcast.video.sources import SourceOptions
from ballcast_server.settings import Limits
from ballcast_server.streams.cluster_actor import Follower, Item, RemoteFollower, StreamOrder
from ballcast_server.streams.scheduler import Load

GPU_PARTS = 10_000  # Ray counts GPUs in these; more would be rounded up, and the last actor find no room


class ClusterSession:
    """A stream that is followed on the cluster; what `LiveSession` has for its users. Made by `ClusterSessions`."""

    def __init__(self, owner: "ClusterSessions", order: StreamOrder, every_ms: int) -> None:
        self.key = secrets.token_hex(8)
        self.order = order
        self.name = shown(order.address)
        self.error: BaseException | None = None  # set when the session ends in state "error"
        self.held = False  # its machine has no room for it
        self.ring = ClusterRing(self) if order.ring_s is not None else None
        self.follower: RemoteFollower | None = None
        self._owner = owner
        self._broadcast = SessionBroadcast()
        self._status = Status("opening", f"opening {self.name}", 0, wall_ms(), every_ms)
        self._before = self._status  # what the machines that died had counted
        self._offset_ms = 0  # of the machine's clock, which started again
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

    def subscribe(self, *, previews: bool = False, capacity: int = 64) -> Subscription[Record]:
        return self._broadcast.subscribe(previews=previews, capacity=capacity)

    @property
    def status(self) -> Status:
        """The latest status."""
        return self._status

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._started and not self._over.is_set()

    def timestamp(self, at_ms: int) -> float | None:
        return None if self._zero_s is None else self._zero_s + (at_ms - self._offset_ms) / 1000

    def close(self) -> None:
        """Stop; does not wait for the machine."""
        self.publish("stopped", "stopped")  # mark as stopped before releasing it, so it is not restarted
        self._owner.end(self)

    def __enter__(self) -> "ClusterSession":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --------------------------------------------------------------------------------------- called by its machine

    def take(self, item: Item) -> None:
        """Send a record of the machine to the listeners, on this session's clock and with its counts."""
        record = self._shifted(item.record)
        self._last = time.monotonic()
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
        """The machine died: the stream starts again on another."""
        if is_stream(self.order.address):  # a file begins at its own time 0
            self._offset_ms = self._status.at_ms + round(1000 * (time.monotonic() - self._last))
        self._zero_s = None
        self.held = False
        self._before = replace(self._status, reconnects=self._status.reconnects + 1)
        self._status = self._before
        self.publish("reconnecting", "the machine that followed it is gone; it starts again on another")

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
            made = record.forecast
            moved = tuple(replace(p, position_ms=p.position_ms + by) for p in made.predictions)
            return replace(record, forecast=replace(made, at_ms=made.at_ms + by, predictions=moved))
        return replace(record, at_ms=record.at_ms + by) if isinstance(record, Preview | Status) else record


class ClusterRing:
    """The latest packets of a stream, on the machine that follows it; see `PacketRing`."""

    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self.newest_s = -1.0  # as of the last record

    def write(self, path: Path, begin_s: float, end_s: float) -> bool:
        """Write the packets of these seconds to a file here; False: there are none, or their machine is gone."""
        follower = self._session.follower
        content = b"" if follower is None else follower.clip(self._session.key, begin_s, end_s)
        if content:
            with replacing(path) as new:
                new.write_bytes(content)
        return bool(content)


class ClusterSessions:
    """The streams that a cluster follows for this process, from entering the `with` block to its end.

    Args:
        cluster: address of a running cluster; None: Ray on this machine.
        model: arguments of `open_model`; by default the embedded model.
        every_ms, emit: as of a `StreamPredictor`.
        any_video: forecast also where no football pitch is seen.
        per_machine: actors that share a machine and its GPU, at least 1.
    """

    def __init__(
        self,
        cluster: str | None,
        *,
        model: dict[str, Any] | None = None,
        every_ms: int = 1000,
        emit: EmitConfig | None = None,
        any_video: bool = True,
        per_machine: int = 1,
    ) -> None:
        if per_machine < 1:
            raise InputError(f"{per_machine} followers a machine: give 1 or more")
        self._cluster = cluster
        self._every_ms = every_ms
        self._per_machine = per_machine
        self._actor_args = (model or {}, every_ms, emit, any_video)
        self._on_gpu = (model or {}).get("device") == "cuda"
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._followers: list[RemoteFollower] = []

    def __enter__(self) -> "ClusterSessions":
        self._ray = self._stack.enter_context(ray_cluster(self._cluster))
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(
        self,
        address: str,
        *,
        ring_s: float | None = None,
        source: SourceOptions = SourceOptions(),
        previews: PreviewOptions | None = None,
        limits: Limits = Limits(),
    ) -> ClusterSession:
        """A session on a stream, not started.

        Args:
            address: of the stream.
            ring_s: seconds of its packets that the machine keeps for clips; None: none.
            source: how it is opened.
            previews: size and rate of its previews; None: none are sent.
            limits: on the pixels, memory and time that it takes.
        """
        return ClusterSession(self, StreamOrder(address, ring_s, source, previews, limits), self._every_ms)

    @property
    def load(self) -> Load:
        """What all actors do together; busy: the busiest."""
        with self._lock:
            loads = [follower.load for follower in self._followers]
        sums = {what: sum(getattr(load, what) for load in loads) for what in Load.__dataclass_fields__}
        return Load(**sums | {"busy": max((load.busy for load in loads), default=0.0)})

    def close(self) -> None:
        """End all sessions and actors, then the connection: a thread that still asks Ray would abort the process."""
        with self._lock:
            followers = self._followers
            self._followers = []
        for follower in followers:
            follower.close()
        self._stack.close()

    def begin(self, session: ClusterSession) -> None:
        """Give a session to the actor with the fewest; to a new one while the machines have room for more."""
        with self._lock:
            if session.status.state in LAST:  # closed before it was begun
                return
            self._followers = [follower for follower in self._followers if not follower.over]
            fewest = min(self._followers, key=lambda follower: len(follower.sessions), default=None)
            if fewest is None or (fewest.sessions and len(self._followers) < self._limit()):
                actor = self._ray.remote(Follower).options(
                    num_cpus=1,
                    num_gpus=GPU_PARTS // self._per_machine / GPU_PARTS if self._on_gpu else 0,
                    max_restarts=-1,
                    max_concurrency=4,  # one call brings records, others clips
                    scheduling_strategy="SPREAD",
                )
                fewest = RemoteFollower(self._ray, actor, self._actor_args)
                self._followers.append(fewest)
            fewest.add(session)
            if fewest.over:  # it failed meanwhile, perhaps after it had ended its sessions
                session.publish("error", "the machine that was to follow it has failed; start it again")

    def end(self, session: ClusterSession) -> None:
        """Have a session's machine end it."""
        with self._lock:
            if session.follower is not None:
                session.follower.sessions.pop(session.key, None)

    def _limit(self) -> int:
        """Actors that the machines have room for: as many as wanted, one a core at most; a GPU where one is needed."""
        needed = ("CPU", "GPU") if self._on_gpu else ("CPU",)
        found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        ready = [node for node in found if all(node.get(what, 0) >= 1 for what in needed)]
        return sum(min(self._per_machine, int(node["CPU"])) for node in ready)

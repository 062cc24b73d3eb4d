"""Streams on a Ray cluster: an actor on each machine follows some of them; Ray starts it anew where a machine dies.

    for address, record in follow_streams(["rtsp://camera/1", "rtsp://camera/2"], cluster="10.0.0.1:6379"):
        ...

A stream whose machine dies begins anew on another: a status "reconnecting" says so, and its clock starts at 0. Every
machine must reach the streams, and see the model under its path.
"""

import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.cluster import ray_cluster
from ballcast.core.errors import BallcastError, InputError
from ballcast.inference.loading import open_model
from ballcast.live.scheduler import Scheduler
from ballcast.live.status import LAST, Record, Status, wall_ms
from ballcast.video.addresses import shown
from ballcast.video.sources import open_source

ROOM = 4096  # records of a stream that may wait
AGAIN_S = 1.0  # until a stream whose machine died is asked for again


def follow_streams(
    addresses: Sequence[str],
    *,
    cluster: str | None,
    model: dict[str, Any] | None = None,
    every_ms: int = 1000,
    emit: EmitConfig | None = None,
    any_video: bool = True,
    **how: Any,
) -> Generator[tuple[str, Record], None, None]:
    """Records of all streams as they come, each with its stream's address, until all are over.

    Args:
        addresses: of the streams.
        cluster: address of a running cluster; None: Ray on this machine.
        model: arguments of `open_model`; by default the embedded model.
        every_ms, emit: as of a `RollingAnticipator`.
        any_video: forecast also where no football pitch is seen.
        how: further arguments of `open_source`.
    """
    with ray_cluster(cluster) as ray:
        nodes = sum(node["Alive"] and node["Resources"].get("CPU", 0) >= 1 for node in ray.nodes())
        count = max(1, min(len(addresses), nodes))
        on_gpu = (model or {}).get("device") == "cuda"
        actor = ray.remote(_Follower).options(
            num_cpus=1,
            num_gpus=1 if on_gpu else 0,
            max_restarts=-1,
            max_concurrency=len(addresses) + 1,
            scheduling_strategy="SPREAD",
        )
        actors = [actor.remote(model or {}, every_ms, emit, any_video) for _ in range(count)]
        if fault := next((fault for fault in ray.get([each.fault.remote() for each in actors]) if fault), ""):
            raise InputError(fault)
        records: queue.SimpleQueue[tuple[str, Record]] = queue.SimpleQueue()
        for i, address in enumerate(addresses):
            follow = (ray, actors[i % count], address, every_ms, how, records)
            threading.Thread(target=_follow, args=follow, name="cluster-stream", daemon=True).start()
        left = len(addresses)
        while left:
            address, record = records.get()
            left -= isinstance(record, Status) and record.state in LAST
            yield address, record


class _Follower:
    """The actor: one scheduler for its streams."""

    def __init__(self, model: dict[str, Any], every_ms: int, emit: EmitConfig | None, any_video: bool) -> None:
        self._emit, self._any_video, self._fault = emit, any_video, ""
        try:
            opened = open_model(**model)
            if opened.new_runtime is None:
                raise InputError(f"{opened.name}: reads no videos; give a model with its backbone")
            self._scheduler = Scheduler(opened.new_runtime, every_ms=every_ms)
        except BallcastError as error:  # raised here, it would have Ray start the actor again and again
            self._fault = str(error)

    def fault(self) -> str:
        """Why it cannot follow streams; "": it can."""
        return self._fault

    def follow(self, address: str, how: dict[str, Any]) -> Iterator[Record]:
        """Records of a stream, to its end."""
        source = open_source(address, colour=self._scheduler.colour, **how)
        session = self._scheduler.session(source, emit=self._emit, any_video=self._any_video)
        with session.subscribe(room=ROOM) as records, session:
            yield from records


def _follow(ray: Any, actor: Any, address: str, every_ms: int, how: dict[str, Any], records: Any) -> None:
    """Put the records of a stream into the queue; ask again while the actor is started anew."""
    name, times, gone = shown(address), 0, False

    def say(state: Any, message: str) -> None:
        records.put((address, Status(state, f"{name}: {message}", 0, wall_ms(), every_ms, reconnects=times)))

    while True:
        try:
            for reference in actor.follow.options(num_returns="streaming").remote(address, how):
                record, gone = ray.get(reference), False
                records.put((address, record))
                if isinstance(record, Status) and record.state in LAST:
                    return
            say("error", "its session ended without a word")
            return
        except ray.exceptions.RayActorError:
            if not gone:  # the first time; the actor may take a while to start
                times, gone = times + 1, True
                say("reconnecting", "the machine that followed it is gone; it begins anew on another")
            time.sleep(AGAIN_S)
        except Exception as error:  # of the source, or the cluster as a whole
            cause = getattr(error, "cause", None) or error
            say("error", str(cause).removeprefix(f"{name}: "))
            return

"""Send records to any number of listeners, each with its own bounded queue.

A slow listener loses its oldest records and gets a `MissedRecords` with their number; the sender never waits. A
listener that disappears without `close()` costs its queue and no more.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from ballcast.live.status import LAST, MissedRecords, Preview, Record, Status


class Subscription:
    """One listener's queue: iterate over it, or `get`, or `poll`. Safe to use from any one thread.

    The iteration ends after the last status ("ended", "stopped", "error") or `close()`.
    """

    def __init__(self, hub: "Broadcast", *, previews: bool, room: int, wake: Callable[[], None] | None) -> None:
        self.previews = previews
        self._hub, self._wake = hub, wake
        self._queue: deque[Record] = deque()
        self._room = room
        self._lost = 0
        self._closed = False
        self._ready = threading.Condition()

    def poll(self) -> Record | None:
        """The next record if there is one, at once."""
        with self._ready:
            return self._take()

    def get(self, timeout: float | None = None) -> Record | None:
        """The next record; None after `timeout` seconds without one, or when there will be none."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._closed, timeout)
            return self._take()

    @property
    def over(self) -> bool:
        """Nothing is left and nothing will come."""
        with self._ready:
            return self._closed and not self._queue

    def close(self) -> None:
        """Listen no more."""
        self._hub.forget(self)
        with self._ready:
            self._closed = True
            self._queue.clear()
            self._ready.notify_all()

    def __iter__(self) -> Iterator[Record]:
        while (record := self.get()) is not None:
            yield record

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, record: Record, *, last: bool = False) -> None:
        """The sender's side: never waits."""
        with self._ready:
            if self._closed:
                return
            if len(self._queue) >= self._room:
                self._queue.popleft()
                self._lost += 1
            self._queue.append(record)
            self._closed = last
            self._ready.notify_all()
        if self._wake is not None:
            self._wake()

    def _take(self) -> Record | None:
        if self._lost:
            lost, self._lost = self._lost, 0
            return MissedRecords(lost)
        return self._queue.popleft() if self._queue else None


class Broadcast:
    """Sends a session's records to its listeners. A new listener first gets the latest record of each type."""

    def __init__(self) -> None:
        self._listeners: set[Subscription] = set()
        self._latest: dict[type, Record] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, *, previews: bool = False, room: int = 64, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """previews: pictures too. room: records that may wait. wake: called, on the sender's thread, after each put."""
        listener = Subscription(self, previews=previews, room=max(1, room), wake=wake)
        with self._lock:
            for record in sorted(self._latest.values(), key=lambda r: isinstance(r, Status)):  # the status may be last
                if previews or not isinstance(record, Preview):
                    listener.put(record, last=_is_last(record))
            self._listeners.add(listener)
        return listener

    def forget(self, listener: Subscription) -> None:
        """Send no more records to `listener`."""
        with self._lock:
            self._listeners.discard(listener)

    def send(self, record: Record) -> None:
        """Put a record into the queue of each listener; never waits."""
        with self._lock:
            self._latest[type(record)] = record
            listeners = [li for li in self._listeners if li.previews or not isinstance(record, Preview)]
            if _is_last(record):
                self._listeners.clear()
        for listener in listeners:  # not under the lock: `wake` is the listener's own code
            listener.put(record, last=_is_last(record))

    @property
    def watched(self) -> bool:
        """Whether any listener wants previews."""
        with self._lock:
            return any(listener.previews for listener in self._listeners)

    @property
    def latest(self) -> Status | None:
        """The latest status, if any was sent."""
        with self._lock:
            status = self._latest.get(Status)
        return status if isinstance(status, Status) else None


def _is_last(record: Record) -> bool:
    return isinstance(record, Status) and record.state in LAST

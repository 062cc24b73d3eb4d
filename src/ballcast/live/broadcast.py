"""Send records to any number of listeners, each with its own bounded queue.

A slow listener loses its oldest records and gets a `MissedRecords` with their number; the sender never waits. A
listener that disappears without `close()` costs its queue and no more.
"""

import threading
from collections.abc import Iterator

from ballcast.live.status import LAST, MissedRecords, Preview, Record, Status
from ballcast.video.queues import BoundedQueue


class Subscription:
    """One listener's queue: iterate over it, or call `get`, from one thread.

    The iteration ends after the last status ("ended", "stopped", "error") or `close()`.
    """

    def __init__(self, hub: "Broadcast", *, previews: bool, capacity: int) -> None:
        self.previews = previews
        self._hub = hub
        self._queue: BoundedQueue[Record] = BoundedQueue(capacity, when_full="drop_oldest")
        self._next: Record | None = None  # taken already; comes after the notice of those dropped before it

    def get(self, timeout: float | None = None) -> Record | None:
        """The next record; None after `timeout` seconds without one, or when there will be none."""
        if self._next is not None:
            record, self._next = self._next, None
            return record
        got = self._queue.get(timeout)
        if got is None:
            return None
        record, dropped = got
        if not dropped:
            return record
        self._next = record
        return MissedRecords(dropped)

    @property
    def over(self) -> bool:
        """Whether nothing is left and nothing will come."""
        return self._next is None and self._queue.over

    def close(self) -> None:
        """Stop listening."""
        self._hub.forget(self)
        self._queue.close()
        self._next = None

    def __iter__(self) -> Iterator[Record]:
        while (record := self.get()) is not None:
            yield record

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(self, record: Record, *, last: bool = False) -> None:
        """Add a record, on the sender's thread; never waits."""
        self._queue.put(record)
        if last:
            self._queue.end()


class Broadcast:
    """Sends a session's records to its listeners. A new listener first gets the latest record of each type."""

    def __init__(self) -> None:
        self._listeners: set[Subscription] = set()
        self.watched = False  # whether any listener wants previews
        self._latest: dict[type, Record] = {}
        self._lock = threading.Lock()

    def subscribe(self, *, previews: bool = False, capacity: int = 64) -> Subscription:
        """Add a listener. previews: send images too. capacity: records that may wait."""
        listener = Subscription(self, previews=previews, capacity=max(1, capacity))
        with self._lock:
            for record in sorted(self._latest.values(), key=lambda r: isinstance(r, Status)):  # the status may be last
                if previews or not isinstance(record, Preview):
                    listener.put(record, last=_is_last(record))
            self._listeners.add(listener)
            self.watched = self.watched or previews
        return listener

    def forget(self, listener: Subscription) -> None:
        """Send no more records to `listener`."""
        with self._lock:
            self._listeners.discard(listener)
            self.watched = any(listener.previews for listener in self._listeners)

    def send(self, record: Record) -> None:
        """Put a record into the queue of each listener; never waits."""
        with self._lock:
            last = self._latest.get(Status)
            if last is not None and _is_last(last):  # whatever another thread still has to say
                return
            self._latest[type(record)] = record
            listeners = [li for li in self._listeners if li.previews or not isinstance(record, Preview)]
            if _is_last(record):
                self._listeners.clear()
                self.watched = False
        for listener in listeners:
            listener.put(record, last=_is_last(record))

    @property
    def latest(self) -> Status | None:
        """The latest status, if any was sent."""
        with self._lock:
            status = self._latest.get(Status)
        return status if isinstance(status, Status) else None


def _is_last(record: Record) -> bool:
    return isinstance(record, Status) and record.state in LAST

"""Publish and subscribe: one sender, any number of listeners, each with its own bounded queue.

The sender never waits. A listener that is too slow loses its oldest items, and gets a notice with their number in their
place. A new listener first gets the latest items of each kind. `SessionBroadcast` sends the records of a live session;
a server sends its events in the same way.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from ballcast.live.status import LAST, LiveForecast, MissedRecords, Preview, Record, Status

T = TypeVar("T")


class Broadcast(Generic[T]):
    """Sends items to its listeners; may be used from any thread.

    Args:
        keep: for each kind of item, how many of the latest a new listener gets; None: all. It gets them in the order of
            the kinds here; items of other kinds are not kept.
        missed: makes the notice of how many items a listener has missed.
    """

    def __init__(self, keep: Mapping[str, int | None], missed: Callable[[int], T]) -> None:
        self.missed = missed
        self.ended = False
        self.changed = threading.Condition()
        self._kept: dict[str, deque[T]] = {kind: deque(maxlen=most) for kind, most in keep.items()}
        self._listeners: set[Subscription[T]] = set()

    def subscribe(
        self, *, capacity: int = 64, without: Collection[str] = (), wake: Callable[[], None] | None = None
    ) -> "Subscription[T]":
        """Add a listener.

        Args:
            capacity: items that may wait for it, besides those it gets at first.
            without: kinds of items it does not get.
            wake: called after items were sent, once for all listeners with the same function; for a listener that
                cannot block, and calls `get(0)`.
        """
        with self.changed:
            earlier = [item for kind, items in self._kept.items() if kind not in without for item in items]
            listener = Subscription(self, earlier, max(1, capacity), frozenset(without), wake)
            if not self.ended:
                self._listeners.add(listener)
        return listener

    def send(self, kind: str, item: T, *, last: bool = False) -> None:
        """Put an item into the queue of each listener; nothing is sent after the last one."""
        with self.changed:
            if self.ended:
                return
            if kind in self._kept:
                self._kept[kind].append(item)
            receivers = [listener for listener in self._listeners if kind not in listener.without]
            for listener in receivers:
                listener.add(item)
            self._notify(receivers)
            if last:
                self.end()

    def end(self) -> None:
        """Send nothing more: listeners get what waits for them, and then are `over`."""
        with self.changed:
            self.ended = True
            listeners = self._listeners
            self._listeners = set()
            self._notify(listeners)

    def is_wanted(self, kind: str) -> bool:
        """Whether any listener gets items of this kind."""
        with self.changed:
            return any(kind not in listener.without for listener in self._listeners)

    def forget(self, listener: "Subscription[T]") -> None:
        """Send no more items to `listener`."""
        with self.changed:
            self._listeners.discard(listener)

    def _notify(self, listeners: "Iterable[Subscription[T]]") -> None:
        self.changed.notify_all()
        for wake in {listener.wake for listener in listeners if listener.wake is not None}:
            wake()


class Subscription(Generic[T]):
    """One listener's queue: iterate over it, or call `get`, from one thread. `Broadcast.subscribe` makes it.

    The iteration ends after the last item or `close()`.
    """

    def __init__(
        self,
        hub: Broadcast[T],
        earlier: Iterable[T],
        capacity: int,
        without: frozenset[str],
        wake: Callable[[], None] | None,
    ) -> None:
        self.without = without
        self.wake = wake
        self._hub = hub
        self._earlier = deque(earlier)  # from before it was added; not bounded by the capacity
        self._queue: deque[T] = deque()
        self._capacity = capacity
        self._missed = 0
        self._closed = False

    def add(self, item: T) -> None:
        """Add an item, on the sender's thread."""
        if len(self._queue) == self._capacity:
            self._queue.popleft()
            self._missed += 1
        self._queue.append(item)

    def get(self, timeout: float | None = None) -> T | None:
        """The next item; None after `timeout` seconds without one, or when there will be none."""
        with self._hub.changed:
            self._hub.changed.wait_for(lambda: self._earlier or self._queue or self.over, timeout)
            if self._earlier:
                return self._earlier.popleft()
            if self._missed:
                missed = self._missed
                self._missed = 0
                return self._hub.missed(missed)
            return self._queue.popleft() if self._queue else None

    @property
    def over(self) -> bool:
        """Whether nothing is left and nothing will come."""
        with self._hub.changed:
            return self._closed or (self._hub.ended and not self._earlier and not self._queue)

    def close(self) -> None:
        """Stop listening."""
        self._hub.forget(self)
        with self._hub.changed:
            self._closed = True
            self._earlier.clear()
            self._queue.clear()
            self._missed = 0
            self._hub.changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        while (item := self.get()) is not None:
            yield item

    def __enter__(self) -> "Subscription[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_KINDS: dict[type[Record], str] = {LiveForecast: "forecast", Preview: "preview", Status: "status"}


class SessionBroadcast:
    """Sends the records of a live session, until its last status ("ended", "stopped", "error")."""

    def __init__(self) -> None:
        # The status comes last, since it may be the last record of all.
        self._hub: Broadcast[Record] = Broadcast({"forecast": 1, "preview": 1, "status": 1}, MissedRecords)
        self.latest: Status | None = None  # the latest status, if any was sent

    def send(self, record: Record) -> None:
        """Send a record to all listeners; never waits."""
        last = False
        if isinstance(record, Status):
            last = record.state in LAST
            if not self._hub.ended:
                self.latest = record
        self._hub.send(_KINDS[type(record)], record, last=last)

    def subscribe(self, *, previews: bool = False, capacity: int = 64) -> Subscription[Record]:
        """A queue of all records from now on, begun with the latest ones.

        Args:
            previews: send images too.
            capacity: records that may wait.
        """
        return self._hub.subscribe(capacity=capacity, without=() if previews else ("preview",))

    @property
    def watched(self) -> bool:
        """Whether any listener wants previews."""
        return self._hub.is_wanted("preview")

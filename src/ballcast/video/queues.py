"""Bounded queues between a thread that decodes and one that computes."""

import queue
import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """At most `room` items. A patient writer waits for room; another throws all that waits away and goes on from now:
    old frames are worth nothing, and a hole among them would make all of them useless.
    """

    def __init__(self, room: int, *, patient: bool) -> None:
        self._room, self._patient = room, patient
        self._items: deque[T] = deque()
        self._dropped = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, item: T) -> bool:
        """The writer's side; False once the reader is gone."""
        with self._changed:
            if self._patient:
                self._changed.wait_for(lambda: len(self._items) < self._room or self._closed)
            elif len(self._items) >= self._room:
                self._dropped += len(self._items)
                self._items.clear()
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come; `error` is raised at the reader, after what is still here."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """The reader is gone, or is to go."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> tuple[T, int] | None:
        """The next item and how many were thrown away just before it; None after `timeout` s, or when it is `over`."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed, timeout)
            if self._items:
                self._changed.notify_all()
                dropped, self._dropped = self._dropped, 0
                return self._items.popleft(), dropped
            if self._ended and self._error is not None and not self._closed:
                raise self._error
            return None

    @property
    def over(self) -> bool:
        with self._changed:
            return (self._ended or self._closed) and not self._items

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)


Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """The items of an iterator in their order, made up to `ahead` items early on a thread of its own.

    An error in the iterator is raised here, after the items before it. Use it as a context manager, or exhaust it:
    leaving the block stops the thread, also when it waits for room.
    """

    def __init__(self, items: Iterator[Item], *, ahead: int = 64) -> None:
        self._items = items
        self._queue: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(max(1, ahead))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._stopped.is_set():
            raise StopIteration
        more, item = self._queue.get()
        if more:
            return item  # type: ignore[return-value]
        self.close()
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and wait for it; items not taken yet are dropped."""
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()  # the thread may be waiting for room
            except queue.Empty:
                self._thread.join(0.01)

    def __enter__(self) -> "Prefetcher[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        end: BaseException | None = None
        try:
            for item in self._items:
                if self._stopped.is_set():
                    break
                self._queue.put((True, item))
        except BaseException as error:  # handed to the reader, which raises it
            end = error
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
        if not self._stopped.is_set():
            self._queue.put((False, end))

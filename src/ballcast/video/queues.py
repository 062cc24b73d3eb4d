"""The bounded queue between threads, and an iterator that is read ahead on a thread."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
WhenFull = Literal["wait", "clear"]


class BoundedQueue(Generic[T]):
    """A queue of at most `size` items between one writer and one reader.

    `queue.Queue` has neither an end that can carry an error nor a policy of dropping, both of which are needed here.

    Args:
        size: items that may wait.
        when_full: what `put` does then. "wait": block until the reader has taken an item. "clear": drop all that wait,
            for live frames, where a hole among old ones would make all of them useless.
    """

    def __init__(self, size: int, *, when_full: WhenFull) -> None:
        self._size = size
        self._when_full = when_full
        self._items: deque[T] = deque()
        self._dropped = 0
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, item: T) -> bool:
        """Add an item, on the writer's thread; False once the queue was ended or closed."""
        with self._changed:
            if self._when_full == "wait":
                self._changed.wait_for(lambda: len(self._items) < self._size or self._closed)
            if self._closed or self._ended:
                return False
            if len(self._items) >= self._size:
                self._dropped += len(self._items)
                self._items.clear()
            self._items.append(item)
            self._changed.notify_all()
            return True

    def restart(self, item: T) -> None:
        """Take out all that wait, without counting them as dropped, and add an item; on the writer's thread."""
        with self._changed:
            if not (self._closed or self._ended):
                self._items.clear()
                self._items.append(item)
                self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the end, on the writer's thread; `error` is raised in `get` after the items before it."""
        with self._changed:
            self._ended = True
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        """Drop all items and take no more, on the reader's thread; a writer that waits returns."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> tuple[T, int] | None:
        """Take the next item.

        Args:
            timeout: seconds to wait for one; None: until there is one, or the end.

        Returns:
            The item and how many were dropped before it since the last; None after the timeout or when `over`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed, timeout)
            if self._items:
                self._changed.notify_all()
                dropped = self._dropped
                self._dropped = 0
                return self._items.popleft(), dropped
            if self._ended and self._error is not None and not self._closed:
                raise self._error
            return None

    @property
    def over(self) -> bool:
        """Whether nothing is left and nothing will come."""
        with self._changed:
            return (self._ended or self._closed) and not self._items

    def __len__(self) -> int:
        with self._changed:
            return len(self._items)


class Prefetcher(Generic[T]):
    """An iterator whose items are made up to `ahead` items early on another thread; the order stays.

    An error in the iterator is raised here, after the items before it. Use it as a context manager, or exhaust it:
    leaving the block stops the thread, also when the queue is full.
    """

    def __init__(self, items: Iterator[T], *, ahead: int = 64) -> None:
        self._items = items
        self._queue: BoundedQueue[T] = BoundedQueue(max(1, ahead), when_full="wait")
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            got = self._queue.get()
        except BaseException:
            self.close()
            raise
        if got is None:
            self.close()
            raise StopIteration
        return got[0]

    def close(self) -> None:
        """Stop the thread and wait for it; items not taken yet are dropped."""
        self._queue.close()
        self._thread.join()

    def __enter__(self) -> "Prefetcher[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        fault: BaseException | None = None
        try:
            for item in self._items:
                if not self._queue.put(item):
                    break
        except BaseException as error:  # raised on the reader's thread
            fault = error
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
            self._queue.end(fault)

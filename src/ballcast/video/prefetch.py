"""Decoding ahead on a thread, so that whoever computes on the frames does not wait for them."""

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetched(Generic[T]):
    """The items of an iterator in their order, made up to `ahead` items early on a thread of its own.

    An error in the iterator is raised here, after the items before it. Use it as a context manager, or exhaust it:
    leaving the block stops the thread, also when it waits for room.
    """

    def __init__(self, items: Iterator[T], *, ahead: int = 64) -> None:
        self._items = items
        self._queue: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(max(1, ahead))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
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

    def __enter__(self) -> "Prefetched[T]":
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

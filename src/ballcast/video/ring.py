"""A bounded queue between the thread that decodes and the one that computes."""

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
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

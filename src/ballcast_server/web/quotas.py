"""How much users may do at once: uploads, and following jobs and streams."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ballcast_server.settings import Limits, RequestError


class UserLimit:
    """Limits the number of something that users do at once, per user and in total.

    Args:
        a_user: of one user.
        total: of all users.
        refusal: why a user gets no more; `{count}` in it is the number of his.
        full: why nobody does.
        retry_s: seconds after which it may be tried again then.
    """

    def __init__(self, *, a_user: int, total: int, refusal: str, full: str, retry_s: int | None = None) -> None:
        self._a_user = a_user
        self._total = total
        self._refusal = refusal
        self._full = full
        self._retry_s = retry_s
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @staticmethod
    def of_uploads(limits: Limits) -> "UserLimit":
        """The limit of uploads."""
        return UserLimit(
            a_user=limits.uploads_a_user,
            total=limits.uploads,
            refusal="you have {count} uploads running; wait until one is done",
            full="too many uploads at once; try again later",
        )

    @staticmethod
    def of_viewers(limits: Limits) -> "UserLimit":
        """The limit of those who follow jobs and streams."""
        return UserLimit(
            a_user=limits.viewers_a_user,
            total=limits.viewers,
            refusal="you follow {count} jobs and streams at once; close some",
            full="too many viewers at once; try again later",
            retry_s=30,
        )

    @property
    def count(self) -> int:
        """Number of all users."""
        with self._lock:
            return self._running.total()

    def add(self, user: str) -> Callable[[], None]:
        """Count one more; raises RequestError 429 or 503 if there are too many.

        Returns:
            A function that counts it no longer.
        """

        def remove() -> None:
            with self._lock:
                self._running[user] -= 1
                self._running += Counter()  # drops users with none

        with self._lock:
            count = self._running[user]
            if count >= self._a_user:
                raise RequestError(429, self._refusal.format(count=count))
            if self._running.total() >= self._total:
                raise RequestError(503, self._full, retry_s=self._retry_s)
            self._running[user] += 1
        return remove

    @contextmanager
    def enter(self, user: str) -> Iterator[None]:
        """Count one more during the block; errors as in `add`."""
        remove = self.add(user)
        try:
            yield
        finally:
            remove()

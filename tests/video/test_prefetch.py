"""Decoding ahead keeps the order, hands on errors, and leaves no thread behind."""

import threading
import time
from collections.abc import Iterator

import pytest

from ballcast.video.prefetch import Prefetched


def prefetching() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "prefetch"]


def test_order_is_kept() -> None:
    assert list(Prefetched(iter(range(1000)), ahead=3)) == list(range(1000))
    assert not prefetching()


def test_an_error_comes_after_what_was_before_it_and_ends_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    ahead = Prefetched(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(ahead)
    assert list(ahead) == []
    assert not prefetching()


def test_it_works_ahead_but_not_without_bound() -> None:
    made = []

    def items() -> Iterator[int]:
        for n in range(100):
            made.append(n)
            yield n

    with Prefetched(items(), ahead=5) as ahead:
        assert next(ahead) == 0
        deadline = time.monotonic() + 5
        while len(made) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert 6 <= len(made) <= 7  # one taken, five waiting, one in hand


def test_leaving_stops_the_thread_and_closes_the_source() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(10**9)
        finally:
            closed.set()

    with Prefetched(items(), ahead=2) as ahead:
        next(ahead)
    assert closed.is_set()
    assert not prefetching()
    assert list(ahead) == []

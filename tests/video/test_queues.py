"""Decoding ahead keeps the order, hands on errors, and leaves no thread behind."""

import threading
import time
from collections.abc import Iterator

import pytest

from ballcast.video.queues import BoundedQueue, Prefetcher


def prefetching() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "prefetch"]


def test_order_is_kept() -> None:
    assert list(Prefetcher(iter(range(1000)), ahead=3)) == list(range(1000))
    assert not prefetching()


def test_an_error_comes_after_what_was_before_it_and_ends_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    ahead = Prefetcher(items())
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

    with Prefetcher(items(), ahead=5) as ahead:
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

    with Prefetcher(items(), ahead=2) as ahead:
        next(ahead)
    assert closed.is_set()
    assert not prefetching()
    assert list(ahead) == []


def test_a_blocking_writer_waits_and_nothing_is_lost() -> None:
    queue: BoundedQueue[int] = BoundedQueue(3, when_full="wait")

    def write() -> None:
        for i in range(500):
            queue.put(i)
        queue.end()

    threading.Thread(target=write, daemon=True).start()
    got = []
    while (item := queue.get(5)) is not None:
        assert item[1] == 0
        assert len(queue) <= 3
        got.append(item[0])
    assert got == list(range(500))
    assert queue.over


def test_a_full_queue_goes_on_from_now_and_says_what_it_dropped() -> None:
    queue: BoundedQueue[int] = BoundedQueue(3, when_full="clear")
    for i in range(8):
        queue.put(i)
    assert queue.get() == (6, 6)  # 0, 1, 2 and 3, 4, 5 were thrown away
    assert queue.get() == (7, 0)
    assert queue.get(0.01) is None
    assert not queue.over


def test_an_error_comes_after_what_was_there() -> None:
    queue: BoundedQueue[int] = BoundedQueue(3, when_full="clear")
    queue.put(1)
    queue.end(ValueError("so"))
    assert queue.get() == (1, 0)
    with pytest.raises(ValueError, match="so"):
        queue.get()


def test_closing_frees_a_writer_that_waits() -> None:
    queue: BoundedQueue[int] = BoundedQueue(1, when_full="wait")
    queue.put(1)
    put: list[bool] = []
    writer = threading.Thread(target=lambda: put.append(queue.put(2)))
    writer.start()
    queue.close()
    writer.join(5)
    assert put == [False]
    assert queue.get() is None

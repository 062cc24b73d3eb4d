"""The queue between decoding and computing: bounded, and honest about what it throws away."""

import threading

import pytest

from ballcast.video.ring import Ring


def test_a_patient_writer_waits_and_nothing_is_lost() -> None:
    ring: Ring[int] = Ring(3, patient=True)

    def write() -> None:
        for i in range(500):
            ring.put(i)
        ring.end()

    threading.Thread(target=write, daemon=True).start()
    got = []
    while (item := ring.get(5)) is not None:
        assert item[1] == 0
        assert len(ring) <= 3
        got.append(item[0])
    assert got == list(range(500))
    assert ring.over


def test_a_full_ring_goes_on_from_now_and_says_what_it_dropped() -> None:
    ring: Ring[int] = Ring(3, patient=False)
    for i in range(8):
        ring.put(i)
    assert ring.get() == (6, 6)  # 0, 1, 2 and 3, 4, 5 were thrown away
    assert ring.get() == (7, 0)
    assert ring.get(0.01) is None
    assert not ring.over


def test_an_error_comes_after_what_was_there() -> None:
    ring: Ring[int] = Ring(3, patient=False)
    ring.put(1)
    ring.end(ValueError("so"))
    assert ring.get() == (1, 0)
    with pytest.raises(ValueError, match="so"):
        ring.get()


def test_closing_frees_a_writer_that_waits() -> None:
    ring: Ring[int] = Ring(1, patient=True)
    ring.put(1)
    told: list[bool] = []
    writer = threading.Thread(target=lambda: told.append(ring.put(2)))
    writer.start()
    ring.close()
    writer.join(5)
    assert told == [False]
    assert ring.get() is None

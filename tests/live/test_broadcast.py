"""One to many: nobody waits for a slow listener, who is told what was lost; one that vanishes costs nothing."""

import gc
import threading
import weakref

from ballcast.core.events import Forecast
from ballcast.live.broadcast import SessionBroadcast
from ballcast.live.status import LiveForecast, MissedRecords, Preview, Record, State, Status


def made(n: int) -> LiveForecast:
    return LiveForecast(Forecast(n), 0, 1.0, 0, 1000)


def status(state: State) -> Status:
    return Status(state, "", 0, 0, 1000)


def test_a_slow_listener_loses_the_oldest_and_is_told() -> None:
    hub = SessionBroadcast()
    slow, quick = hub.subscribe(capacity=4), hub.subscribe(capacity=100)
    for n in range(10):
        hub.send(made(n))
    assert [slow.get(0) for _ in range(6)] == [MissedRecords(6), made(6), made(7), made(8), made(9), None]
    assert [quick.get(0) for _ in range(11)] == [*map(made, range(10)), None]
    hub.send(made(10))
    assert slow.get(0) == made(10)


def test_the_last_status_ends_the_iteration() -> None:
    hub = SessionBroadcast()
    listener = hub.subscribe()
    got: list[Record] = []
    reader = threading.Thread(target=lambda: got.extend(listener))
    reader.start()
    hub.send(made(1))
    hub.send(status("ended"))
    hub.send(made(2))  # too late
    reader.join(5)
    assert got == [made(1), status("ended")]
    assert listener.over


def test_a_late_listener_gets_the_latest_of_each_kind() -> None:
    hub = SessionBroadcast()
    picture = Preview(0, 0, 1, 1, b"")
    for record in (status("running"), made(1), made(2), picture):
        hub.send(record)
    listener = hub.subscribe()
    assert [listener.get(0) for _ in range(3)] == [made(2), status("running"), None]
    with hub.subscribe(previews=True) as listener:
        assert hub.watched
        assert [listener.get(0) for _ in range(3)] == [made(2), picture, status("running")]
    assert not hub.watched
    hub.send(status("error"))
    assert list(hub.subscribe()) == [made(2), status("error")]


def test_a_listener_that_closes_is_forgotten() -> None:
    hub = SessionBroadcast()
    listener = hub.subscribe()
    hub.send(made(1))
    listener.close()
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None
    hub.send(made(2))


def test_get_gives_what_was_sent() -> None:
    hub = SessionBroadcast()
    listener = hub.subscribe()
    hub.send(status("running"))
    assert hub.latest == status("running")
    assert listener.get(0) == status("running")


def test_a_thousand_listeners_one_sender() -> None:
    hub = SessionBroadcast()
    listeners = [hub.subscribe(capacity=8) for _ in range(1000)]
    for n in range(20):
        hub.send(made(n))
    assert all(listener.get(0) == MissedRecords(12) and listener.get(0) == made(12) for listener in listeners)

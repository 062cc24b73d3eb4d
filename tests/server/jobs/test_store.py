"""Jobs on disk: whose turn it is, what a restart finds, what cannot be changed any more."""

import sqlite3
import threading
from pathlib import Path

import pytest

from ballcast.core.errors import InputError
from ballcast_server.jobs.store import MAX_ATTEMPTS, Job, JobStore


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "jobs.sqlite")


def add(store: JobStore, user: str) -> str:
    return store.add(Job(Job.new_id(), user, "a.mp4", "", 32, 64, 1000)).id


def test_users_take_turns_and_their_own_jobs_are_in_order(store: JobStore) -> None:
    first = [add(store, "ann") for _ in range(3)]
    second = [add(store, "ben") for _ in range(2)]
    order = []
    while (job := store.take()) is not None:
        order.append(job.id)
        store.end(job.id, "done")
    assert order == [first[0], second[0], first[1], second[1], first[2]]


def test_somebody_new_comes_before_those_who_had_a_turn(store: JobStore) -> None:
    add(store, "ann"), add(store, "ann")
    store.take()
    new = add(store, "ben")
    assert store.others_wait("ann")
    assert (job := store.take()) is not None
    assert job.id == new


def test_a_job_that_was_put_aside_goes_on_at_its_next_turn(store: JobStore) -> None:
    mine, theirs = add(store, "ann"), add(store, "ben")
    turns = [job.id for _ in range(4) if (job := store.take()) is not None]
    assert turns == [mine, theirs, mine, theirs]


def test_two_workers_serve_two_users(store: JobStore) -> None:
    mine = [add(store, "ann") for _ in range(2)]
    theirs = add(store, "ben")
    taken = [store.take(), store.take(busy=[mine[0]])]
    assert [job.id for job in taken if job] == [mine[0], theirs]
    assert (third := store.take(busy=[mine[0], theirs])) is not None
    assert third.id == mine[1]
    assert store.take(busy=[*mine, theirs]) is None
    assert store.take(only=[]) is None


def test_what_was_running_is_queued_again(tmp_path: Path, store: JobStore) -> None:
    running, done = add(store, "ann"), add(store, "ann")
    store.take()
    store.end(done, "done")
    store.close()
    again = JobStore(tmp_path / "jobs.sqlite")
    assert {job.id: job.state for job in again.all()} == {running: "queued", done: "done"}


def killed(store: JobStore) -> None:
    """What a kill leaves behind: a database that was not closed in order."""
    store._db.close()


def test_a_job_that_kills_the_server_is_given_up(tmp_path: Path, store: JobStore) -> None:
    """Before: it was started again at every start, and the server never stayed up."""
    bad, good = add(store, "ann"), add(store, "ann")
    for _ in range(MAX_ATTEMPTS):
        assert (job := store.take()) is not None
        assert job.id == bad
        store.take()  # its next turn is no new attempt
        killed(store)
        store = JobStore(tmp_path / "jobs.sqlite")
    assert (job := store.get(bad)) is not None
    assert job.state == "failed"
    assert job.message.startswith("the server died 3 times")
    assert job.finished
    assert (job := store.take()) is not None
    assert job.id == good


def test_a_server_that_stops_in_order_counts_no_attempt(tmp_path: Path, store: JobStore) -> None:
    job = add(store, "ann")
    for _ in range(MAX_ATTEMPTS + 2):
        assert (taken := store.take()) is not None
        assert taken.id == job
        store.close()
        store = JobStore(tmp_path / "jobs.sqlite")


def test_a_database_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "jobs.sqlite") as old:
        old.execute(
            "CREATE TABLE jobs (id TEXT PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, library TEXT NOT NULL, "
            "height INTEGER, width INTEGER, duration_ms INTEGER, state TEXT NOT NULL, message TEXT NOT NULL, "
            "created REAL NOT NULL, finished REAL)"
        )
        old.execute("INSERT INTO jobs VALUES ('1', 'ann', 'a.mp4', '', 32, 64, 1000, 'running', '', 1.0, NULL)")
    old.close()
    store = JobStore(tmp_path / "jobs.sqlite")
    assert [(job.id, job.state, job.attempts) for job in store.all()] == [("1", "queued", 0)]
    store.take()
    assert store.all()[0].attempts == 1


def test_an_end_is_an_end(store: JobStore) -> None:
    job = add(store, "ann")
    assert store.end(job, "cancelled")
    assert not store.end(job, "done")
    assert (found := store.get(job)) is not None
    assert found.state == "cancelled"
    assert store.take() is None
    assert store.count("ann") == (0, 1)


def test_many_threads_take_each_job_once(store: JobStore) -> None:
    jobs = {add(store, f"user {i % 7}") for i in range(60)}
    taken: list[str] = []

    def work() -> None:
        while (job := store.take(busy=taken)) is not None:
            if store.end(job.id, "done"):
                taken.append(job.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(jobs)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 20)
    with pytest.raises(InputError, match="as the job database"):
        JobStore(tmp_path / "jobs.sqlite")

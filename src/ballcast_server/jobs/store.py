"""Jobs in an SQLite file, so that they survive a crash of the server.

A job is one video to process. It is queued, then running, then done, failed or cancelled. A job that was running when
the server stopped is queued again when it starts, unless the server was killed `MAX_ATTEMPTS` times while it ran.

Users take turns: the next job is the oldest of the user whose last turn is the longest ago, so that a user with a
hundred videos does not block a user with one.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from ballcast.core.errors import InputError

State = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE = ("queued", "running")
MAX_ATTEMPTS = 3  # starts of a job that ended with the server's death
_GIVEN_UP = f"the server died {MAX_ATTEMPTS} times while it processed this video; see its log, encode the video again"
_LAST_TURN = "(SELECT turn FROM turns WHERE turns.user = jobs.user)"  # NULL, sorted first, before a user's first


@dataclass(frozen=True, slots=True)
class Job:
    """The job of one video.

    Args:
        id: 16 random hex digits, also the name of its folder.
        user: address of the user who submitted it.
        name: of the video, for display.
        library: id of a video of the server's folder; "": an upload, stored in the job's folder.
        height: of the video in pixels.
        width: of the video in pixels.
        duration_ms: length of the video; None: the file does not say.
        state: queued, running, done, failed or cancelled.
        message: why it failed.
        created: Unix time in seconds.
        finished: Unix time in seconds; None: not ended.
        codec: of the video, as FFmpeg names it; "": the job is of an earlier version.
        attempts: how often it was started from the beginning; a server that stops in order takes its start back.
    """

    id: str
    user: str
    name: str
    library: str
    height: int
    width: int
    duration_ms: int | None
    state: State = "queued"
    message: str = ""
    created: float = 0.0
    finished: float | None = None
    attempts: int = 0
    codec: str = ""

    @staticmethod
    def new_id() -> str:
        """Generate an id."""
        return secrets.token_hex(8)

    def as_dict(self) -> dict[str, object]:
        """All fields by name."""
        return asdict(self)


_COLUMNS = tuple(f.name for f in fields(Job))


class JobStore:
    """The jobs of one server; thread-safe.

    Args:
        path: of the SQLite file, created if there is none.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, "
                "library TEXT NOT NULL, height INTEGER, width INTEGER, duration_ms INTEGER, state TEXT NOT NULL, "
                "message TEXT NOT NULL, created REAL NOT NULL, finished REAL, attempts INTEGER NOT NULL DEFAULT 0, "
                "codec TEXT NOT NULL DEFAULT '')"
            )
            present = {row[1] for row in self._db.execute("PRAGMA table_info(jobs)")}
            for column, kind in {"attempts": "INTEGER NOT NULL DEFAULT 0", "codec": "TEXT NOT NULL DEFAULT ''"}.items():
                if column not in present:  # a database of an earlier version
                    self._db.execute(f"ALTER TABLE jobs ADD COLUMN {column} {kind}")
            self._db.execute("CREATE TABLE IF NOT EXISTS turns (user TEXT PRIMARY KEY, turn INTEGER NOT NULL)")
            self._db.execute(
                "UPDATE jobs SET state = 'failed', message = ?, finished = ? WHERE state = 'running' AND attempts >= ?",
                (_GIVEN_UP, time.time(), MAX_ATTEMPTS),
            )
            self._db.execute("UPDATE jobs SET state = 'queued' WHERE state = 'running'")
        except sqlite3.Error as error:
            raise InputError(
                f"cannot use {path} as the job database ({error}); give another folder with --data"
            ) from None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the database. Running jobs are queued again; this start of theirs is not counted."""
        with self._lock:
            with suppress(sqlite3.Error):  # a full disk: they are queued at the next start
                self._db.execute(
                    "UPDATE jobs SET state = 'queued', attempts = MAX(attempts - 1, 0) WHERE state = 'running'"
                )
            self._db.close()

    def add(self, job: Job) -> Job:
        """Store a job; returns it as stored: queued, created now."""
        job = replace(job, state="queued", created=time.time())
        marks = ", ".join("?" * len(_COLUMNS))
        self._run(f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", *asdict(job).values())
        return job

    def get(self, job_id: str) -> Job | None:
        """The job with this id, or None."""
        found = self._run("SELECT * FROM jobs WHERE id = ?", job_id)
        return Job(*found[0]) if found else None

    def all(self) -> list[Job]:
        """All jobs, newest first."""
        return [Job(*row) for row in self._run("SELECT * FROM jobs ORDER BY created DESC, id")]

    def count(self, user: str | None = None) -> tuple[int, int]:
        """Count the jobs of a user, None: of all users; (queued or running, all)."""
        ((active, total),) = self._run(
            "SELECT COALESCE(SUM(state IN ('queued', 'running')), 0), COUNT(*) FROM jobs "
            "WHERE user = COALESCE(?, user)",
            user,
        )
        return active, total

    def take(self, *, busy: Collection[str] = (), only: Collection[str] | None = None) -> Job | None:
        """Mark the next job as running and record its user's turn.

        Args:
            busy: ids of jobs that a worker holds.
            only: ids to choose from; None: all.

        Returns:
            The job, or None if there is none to run.
        """
        with self._lock:
            rows = self._db.execute(
                f"SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY {_LAST_TURN}, created, id"
            ).fetchall()
            served = {row[1] for row in rows if row[0] in busy}  # users with a running job come after the others
            for row in sorted(rows, key=lambda row: row[1] in served):
                job = Job(*row)
                if job.id in busy or (only is not None and job.id not in only):
                    continue
                self._db.execute(
                    "UPDATE jobs SET attempts = attempts + (state = 'queued'), state = 'running' WHERE id = ?",
                    (job.id,),
                )
                self._db.execute(
                    "INSERT INTO turns VALUES (?1, (SELECT COALESCE(MAX(turn), 0) + 1 FROM turns)) "
                    "ON CONFLICT (user) DO UPDATE SET turn = excluded.turn",
                    (job.user,),
                )
                return replace(job, state="running")
        return None

    def others_wait(self, user: str) -> bool:
        """Whether another user has an active job."""
        return bool(self._run("SELECT 1 FROM jobs WHERE state IN ('queued', 'running') AND user != ? LIMIT 1", user))

    def end(self, job_id: str, state: State, message: str = "") -> bool:
        """Set the final state of an active job; returns False, and changes nothing, if it had already ended."""
        return bool(
            self._run(
                "UPDATE jobs SET state = ?, message = ?, finished = ? "
                "WHERE id = ? AND state IN ('queued', 'running') RETURNING id",
                state,
                message,
                time.time(),
                job_id,
            )
        )

    def remove(self, job_id: str) -> None:
        """Delete a job from the database."""
        self._run("DELETE FROM jobs WHERE id = ?", job_id)

    def _run(self, sql: str, *values: object) -> list[tuple]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

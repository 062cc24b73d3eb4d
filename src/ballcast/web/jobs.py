"""Jobs in a SQLite file, so that they survive whatever happens to the server.

A job is one video to anticipate along. It is queued, then running, then done, failed or cancelled. What was running
when the server stopped is queued again when it starts.

Users take turns: the next job is the oldest of the user whose last turn is the longest ago, so that somebody with a
hundred videos holds up nobody with one.
"""

import secrets
import sqlite3
import threading
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from ballcast.core.errors import InputError

State = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE = ("queued", "running")
_LATER = "(SELECT turn FROM turns WHERE turns.user = jobs.user)"  # NULL, which SQLite puts first, before a first turn


@dataclass(frozen=True, slots=True)
class Job:
    """One video's job.

    id: 16 hex digits, made here, also the name of its folder. user: whose turn it takes. name: the video's, as shown.
    library: the id of a video of the server's folder; "": an upload, which lies in the job's folder.
    size: (height, width) and length of the video as probed. message: why it failed. Times are seconds since 1970.
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

    @staticmethod
    def new_id() -> str:
        return secrets.token_hex(8)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


_COLUMNS = tuple(f.name for f in fields(Job))


class JobStore:
    """The jobs of one server; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, "
                "library TEXT NOT NULL, height INTEGER, width INTEGER, duration_ms INTEGER, state TEXT NOT NULL, "
                "message TEXT NOT NULL, created REAL NOT NULL, finished REAL)"
            )
            self._db.execute("CREATE TABLE IF NOT EXISTS turns (user TEXT PRIMARY KEY, turn INTEGER NOT NULL)")
            self._db.execute("UPDATE jobs SET state = 'queued' WHERE state = 'running'")
        except sqlite3.Error as error:
            raise InputError(
                f"{path}: cannot be used for the jobs ({error}); give another folder with --data"
            ) from None
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def add(self, job: Job) -> Job:
        """The job as it was written down: queued, now."""
        job = replace(job, state="queued", created=time.time())
        marks = ", ".join("?" * len(_COLUMNS))
        self._run(f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({marks})", *asdict(job).values())
        return job

    def get(self, job_id: str) -> Job | None:
        found = self._run("SELECT * FROM jobs WHERE id = ?", job_id)
        return Job(*found[0]) if found else None

    def all(self) -> list[Job]:
        """The newest first."""
        return [Job(*row) for row in self._run("SELECT * FROM jobs ORDER BY created DESC, id")]

    def count(self, user: str) -> tuple[int, int]:
        """How many jobs of the user are queued or running, and how many there are in all."""
        ((active, total),) = self._run(
            "SELECT COALESCE(SUM(state IN ('queued', 'running')), 0), COUNT(*) FROM jobs WHERE user = ?", user
        )
        return active, total

    def take(self, *, busy: Collection[str] = (), only: Collection[str] | None = None) -> Job | None:
        """The next job to work on, which is then running and its user's turn is over; None: there is none.

        busy: jobs somebody is at work on. only: choose among these.
        """
        with self._lock:
            rows = self._db.execute(
                f"SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY {_LATER}, created, id"
            ).fetchall()
            mine = {row[1] for row in rows if row[0] in busy}  # users who are served already come after the others
            for row in sorted(rows, key=lambda row: row[1] in mine):
                job = Job(*row)
                if job.id in busy or (only is not None and job.id not in only):
                    continue
                self._db.execute("UPDATE jobs SET state = 'running' WHERE id = ?", (job.id,))
                self._db.execute(
                    "INSERT INTO turns VALUES (?1, (SELECT COALESCE(MAX(turn), 0) + 1 FROM turns)) "
                    "ON CONFLICT (user) DO UPDATE SET turn = excluded.turn",
                    (job.user,),
                )
                return replace(job, state="running")
        return None

    def others_wait(self, user: str) -> bool:
        """Whether another user has a job that is not ended."""
        return bool(self._run("SELECT 1 FROM jobs WHERE state IN ('queued', 'running') AND user != ? LIMIT 1", user))

    def end(self, job_id: str, state: State, message: str = "") -> bool:
        """Set how an active job ended; False: it had ended before, and stays as it was."""
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
        self._run("DELETE FROM jobs WHERE id = ?", job_id)

    def _run(self, sql: str, *values: object) -> list[tuple]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

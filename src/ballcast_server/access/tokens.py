"""Named tokens with a role: viewers may look, administrators may also change. Kept as hashes in a file of the server.

The file is read again when it changes: `ballcast token` works while the server runs, and a revoked token ends its
sessions at once.
"""

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from ballcast.core.errors import InputError
from ballcast.core.files import exclusive_lock, write_json
from ballcast_server.access.auth import new_token
from ballcast_server.rows import read_rows

Role = Literal["viewer", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
FILE = "tokens.json"
MOST = 1000
NAME = re.compile(r"[\w.@-]{1,60}")
LATEST = 1e11  # seconds since 1970 of a time that has a date


class NamedToken(BaseModel):
    """A token that was given out, as `tokens.json` keeps it; an InputError if it cannot be one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # of the person or program that has it
    role: Role
    digest: str  # SHA-256 of the token, in hexadecimal digits
    created: float  # seconds since 1970

    def model_post_init(self, _: Any) -> None:
        """Check what types do not."""
        if not NAME.fullmatch(self.name):
            raise InputError(f"{self.name!r}: a token's name has letters, digits and . @ _ -, at most 60")
        if not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            raise InputError(f"the digest of {self.name} is not a SHA-256")
        if not 0 <= self.created < LATEST:
            raise InputError(f"{self.created!r} is no time that {self.name} was made at")


class TokenStore:
    """The named tokens of a server, in its data folder."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, NamedToken] = {}

    def all(self) -> list[NamedToken]:
        """All tokens, by name."""
        with self._lock:
            self._read()
            return sorted(self._tokens.values(), key=lambda token: token.name)

    def find(self, token: str) -> NamedToken | None:
        """The named token that this is, or None; every one is compared, in constant time."""
        digest = _digest(token)
        with self._lock:
            self._read()
            tokens = list(self._tokens.values())
        found = [known for known in tokens if hmac.compare_digest(known.digest, digest)]
        return found[0] if found else None

    def role(self, name: str, digest: str) -> Role | None:
        """The role of a token that was found before; None: it was revoked since."""
        with self._lock:
            self._read()
            known = self._tokens.get(name)
        return known.role if known is not None and known.digest == digest else None

    def add(self, name: str, role: str) -> str:
        """Make a token; returns it. It cannot be shown again."""
        if role not in ROLES:
            raise InputError(f"{role!r}: a role is viewer or admin")
        token = new_token()
        with self._changing():
            made = NamedToken(name=name, role=role, digest=_digest(token), created=time.time())
            if name in self._tokens:
                raise InputError(f"{name}: there is a token of this name; revoke it first")
            if len(self._tokens) >= MOST:
                raise InputError(f"there are {MOST} tokens; revoke some")
            self._tokens[name] = made
            self._write()
        return token

    def revoke(self, name: str) -> None:
        """Take a token back; an InputError if there is none of this name."""
        with self._changing():
            if name not in self._tokens:
                raise InputError(f"{name}: there is no token of this name; `ballcast token list` shows them")
            del self._tokens[name]
            self._write()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the store against other threads and processes, and read it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        busy = f"{self._path}: another command changes it; try again"
        with self._lock, exclusive_lock(self._path, self._path.with_suffix(".lock"), busy):
            self._seen = None
            self._read()
            yield

    def _read(self) -> None:
        """Read the file if it has changed."""
        try:
            now = self._path.stat()
        except OSError:
            self._seen = None
            self._tokens = {}
            return
        seen = (now.st_ino, now.st_mtime_ns, now.st_size)
        if seen == self._seen:
            return
        self._tokens = {token.name: token for token in read_rows(self._path, "tokens", NamedToken)}
        self._seen = seen

    def _write(self) -> None:
        write_json(self._path, [token.model_dump() for token in self._tokens.values()], indent=1)
        self._path.chmod(0o600)
        self._seen = None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()

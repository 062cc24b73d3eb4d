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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from ballcast.core.errors import InputError
from ballcast.core.files import exclusive_lock, read_json, write_json
from ballcast.web.auth import new_token

Role = Literal["viewer", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
FILE = "tokens.json"
MOST = 1000


@dataclass(frozen=True)
class NamedToken:
    """A token that was given out.

    Args:
        name: of the person or program that has it.
        role: what it may do.
        digest: SHA-256 of the token, in hexadecimal digits.
        created: seconds since 1970.
    """

    name: str
    role: Role
    digest: str
    created: float


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
        found = [known for known in self.all() if hmac.compare_digest(known.digest, digest)]
        return found[0] if found else None

    def role(self, name: str, digest: str) -> Role | None:
        """The role of a token that was found before; None: it was revoked since."""
        with self._lock:
            self._read()
            known = self._tokens.get(name)
        return known.role if known is not None and known.digest == digest else None

    def add(self, name: str, role: str) -> str:
        """Make a token; returns it. It cannot be shown again."""
        if not re.fullmatch(r"[\w.@-]{1,60}", name):
            raise InputError(f"{name!r}: a token's name has letters, digits and . @ _ -, at most 60")
        if role not in ROLES:
            raise InputError(f"{role!r}: a role is viewer or admin")
        token = new_token()
        with self._changing():
            if name in self._tokens:
                raise InputError(f"{name}: there is a token of this name; revoke it first")
            if len(self._tokens) >= MOST:
                raise InputError(f"there are {MOST} tokens; revoke some")
            self._tokens[name] = NamedToken(name, role, _digest(token), time.time())
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
            self._seen, self._tokens = None, {}
            return
        seen = (now.st_ino, now.st_mtime_ns, now.st_size)
        if seen == self._seen:
            return
        try:
            rows = read_json(self._path, "tokens")
            tokens = [NamedToken(row["name"], row["role"], row["digest"], row["created"]) for row in rows]
        except (TypeError, KeyError):
            raise InputError(f"{self._path}: is not a file of tokens; delete it, and add them again") from None
        self._tokens = {token.name: token for token in tokens if token.role in ROLES}
        self._seen = seen

    def _write(self) -> None:
        write_json(self._path, [asdict(token) for token in self._tokens.values()], indent=1)
        self._path.chmod(0o600)
        self._seen = None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()

"""Authentication by a token in a header, or by a session's cookie after login. Wrong ones are limited per address."""

import hashlib
import hmac
import ipaddress
import secrets
import time
from typing import TYPE_CHECKING

from ballcast.core.errors import InputError
from ballcast_server.settings import Limits, RequestError

if TYPE_CHECKING:
    from ballcast_server.access.tokens import NamedToken, Role, TokenStore

COOKIE = "ballcast_session"
MIN_TOKEN_LENGTH = 16  # characters of a token given with --token
MAX_ADDRESSES = 10_000  # addresses whose wrong credentials are counted at once
SHARED = 256  # counters of all further addresses
MAX_SESSIONS = 10_000
MAX_COOKIES = 32 << 10  # characters of a Cookie header that are read


def new_token() -> str:
    """Generate a random token."""
    return secrets.token_urlsafe(24)


def check_token(token: str) -> str:
    """Return the token given by the user; raise InputError if it is too short or not plain ASCII."""
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        raise InputError(
            f"--token must be at least {MIN_TOKEN_LENGTH} plain characters; leave it out to have one generated"
        )
    return token


def check_proxy(address: str) -> str:
    """Return the address or network of a proxy given by the user; raise InputError if it is neither."""
    try:
        return str(ipaddress.ip_network(address) if "/" in address else ipaddress.ip_address(address))
    except ValueError as error:
        raise InputError(
            f"--trusted-proxy {address}: {error}; give an IP address, or a network as 10.0.0.0/8"
        ) from None


class TokenAuth:
    """Checks tokens and sessions, and counts wrong ones per address. Event loop only, but for `check_session`.

    Login exchanges the token for a session: a random id in a cookie, of which only a hash is kept here. A session ends
    at logout, after `Limits.session_s`, and with the server.

    Args:
        token: the token of the operator; None: no authentication.
        named: further tokens, with roles.
        limits: how long a session lasts, how many wrong credentials an address may send, and in what time.
    """

    def __init__(self, token: str | None, limits: Limits, named: "TokenStore | None" = None) -> None:
        self._token = None if token is None else token.encode()
        self._limits = limits
        self._named = named
        # hash of the id → end of the session and the named token it began with, in order of their beginning
        self._sessions: dict[bytes, tuple[float, NamedToken | None]] = {}
        self._wrong: dict[str, _Guesses] = {}  # in order of the last wrong credential
        self._shared: dict[int, _Guesses] = {}  # of addresses that find the table full
        self._salt = secrets.token_bytes(16)

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return self._token is None

    def new_session(self, token: str = "") -> str:
        """Begin a session; returns its id, the value of the cookie. The oldest of `MAX_SESSIONS` is ended for it.

        token: that was given for it; if it is a named one, the session has its role, and ends with it.
        """
        now = time.monotonic()
        for old in [key for key, (end, _) in self._sessions.items() if end <= now]:
            del self._sessions[old]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        named = self._named.find(token) if self._named is not None and token else None
        self._sessions[_hash(session)] = now + self._limits.session_s, named
        return session

    def end_session(self, cookie: str) -> None:
        """End the session of a Cookie header, if it has one."""
        self._sessions.pop(_hash(_cookie(cookie)), None)

    def check_session(self, cookie: str) -> "Role | None":
        """The role of the session whose id a Cookie header holds; None: there is none, or it has ended."""
        end, named = self._sessions.get(_hash(_cookie(cookie)), (0.0, None))
        if end <= time.monotonic():
            return None
        return "admin" if named is None or self._named is None else self._named.role(named.name, named.digest)

    def authenticate(self, authorization: str, cookie: str, client: str) -> "Role | None":
        """Check the headers of a request.

        Args:
            authorization: the Authorization header, or "".
            cookie: the Cookie header, or "".
            client: address of the client.

        Returns:
            The role of the request, None if it is not authenticated. A session is accepted also from an address with
            too many wrong credentials: its id cannot be guessed, and others may share the address.

        Raises:
            RequestError: 429, if the address has sent too many wrong tokens or cookies.
        """
        if self._token is None:
            return "admin"
        if role := self.check_session(cookie):
            return role
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer" and (role := self.check(given.strip(), client)):
            return role
        if session := _cookie(cookie):
            self._count(f"cookie {session}", client)
        return None

    def check(self, token: str, client: str) -> "Role | None":
        """The role of a token, compared in constant time; a wrong one is counted against the address of the client.

        An address with too many wrong tokens gets RequestError 429 even for the right one: else it would learn it.
        """
        if self._token is None:
            return "admin"
        named = self._named.find(token) if self._named is not None else None
        if hmac.compare_digest(token.encode(errors="replace"), self._token) or named is not None:
            self._check_guesses(self._guesses(client))
            self._wrong.pop(network(client), None)
            return "admin" if named is None else named.role
        self._count(f"token {token}", client)
        return None

    def _count(self, wrong: str, client: str) -> None:
        """Count a wrong credential. The same one again is not counted: it tells the guesser nothing, and a page that
        was left open sends its expired cookie again and again."""
        guesses = self._guesses(client)
        digest = _hash(wrong)
        if digest not in guesses:
            self._check_guesses(guesses)
            guesses[digest] = time.monotonic()

    def _check_guesses(self, guesses: "_Guesses") -> None:
        """Raise RequestError 429 if there are too many."""
        if len(guesses) >= self._limits.guesses:
            wait = max(1, round(next(iter(guesses.values())) + self._limits.guesses_s - time.monotonic()))
            raise RequestError(429, f"too many wrong tokens from your address; try again in {wait} s", retry_s=wait)

    def _guesses(self, client: str) -> "_Guesses":
        """The wrong credentials of an address in the last `guesses_s` seconds, to be added to.

        In a full table of `MAX_ADDRESSES` a new address shares one of `SHARED` counters with others, by a secret hash:
        so memory is bounded, no address is forgotten, and no guess is free.
        """
        address = network(client)
        since = time.monotonic() - self._limits.guesses_s
        guesses = self._wrong.pop(address, None)
        if guesses is None and len(self._wrong) >= MAX_ADDRESSES:
            self._drop_expired(since)
            if len(self._wrong) >= MAX_ADDRESSES:
                slot = int.from_bytes(_hash(f"{self._salt.hex()} {address}")[:4]) % SHARED
                return self._recent(self._shared.setdefault(slot, {}), since)
        guesses = {} if guesses is None else guesses
        self._wrong[address] = guesses  # at the end: the table is in order of the last
        return self._recent(guesses, since)

    def _drop_expired(self, since: float) -> None:
        """Drop the addresses at the front of the table that have sent nothing wrong since."""
        for address in list(self._wrong):
            if self._recent(self._wrong[address], since):
                return
            del self._wrong[address]

    @staticmethod
    def _recent(guesses: "_Guesses", since: float) -> "_Guesses":
        for digest in [digest for digest, when in guesses.items() if when < since]:
            del guesses[digest]
        return guesses


_Guesses = dict[bytes, float]  # hash of a wrong credential → when it was first sent


def network(client: str) -> str:
    """The address under which a client is counted: of IPv6 its /64 network, since a host has a whole one."""
    try:
        address = ipaddress.ip_address(client.split("%")[0])  # without the zone of a link-local address
    except ValueError:
        return client
    if address.version == 4:
        return client
    mapped = address.ipv4_mapped  # IPv4 over an IPv6 socket
    return str(mapped or ipaddress.ip_network((address, 64), strict=False))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _cookie(header: str) -> str:
    """Value of our cookie in a Cookie header, or "". Not `SimpleCookie`: its unquoting is quadratic in Python 3.11."""
    pairs = (pair.strip().partition("=") for pair in header[:MAX_COOKIES].split(";"))
    return {name: value for name, _, value in pairs}.get(COOKIE, "")


def is_local(host: str) -> bool:
    """Whether `host` is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Authentication by token: in a header, or as a session cookie after login. Wrong tokens are limited per address."""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import deque

from ballcast.core.errors import InputError
from ballcast.web.settings import Limits, RequestError

COOKIE = "ballcast_session"
MIN_TOKEN_LENGTH = 16  # characters of a token given with --token
MAX_ADDRESSES = 10_000  # addresses whose wrong tokens are counted at once
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


class TokenAuth:
    """Checks tokens in constant time and counts wrong ones per address.

    The session cookie holds a keyed hash of the token, not the token: it stays valid after a restart, and is of no use
    elsewhere.

    Args:
        token: the token that requests must carry; None: no authentication.
        limits: how many wrong tokens an address may send, and in what time.
    """

    def __init__(self, token: str | None, limits: Limits) -> None:
        self._token = None if token is None else token.encode()
        self._session = b"" if token is None else _keyed(token)
        self._limits = limits
        self._wrong: dict[str, deque[float]] = {}

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return self._token is None

    @property
    def session(self) -> str:
        """Value of the session cookie."""
        return self._session.decode()

    def authenticate(self, authorization: str, cookie: str, client: str) -> bool:
        """Check the headers of a request.

        Args:
            authorization: the Authorization header, or "".
            cookie: the Cookie header, or "".
            client: address of the client.

        Returns:
            Whether the request is authenticated.

        Raises:
            RequestError: 429, if the address has sent too many wrong tokens.
        """
        if self._token is None:
            return True
        if _same(_cookie(cookie), self._session):
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.check(given.strip(), client)

    def check(self, token: str, client: str) -> bool:
        """Compare with the token, and count a wrong one against the address of the client. Event loop only.

        An address with too many wrong tokens gets RequestError 429 even for the right one: else it would learn it.
        """
        if self._token is None:
            return True
        address = network(client)
        wrong = self._recent(address)
        if len(wrong) >= self._limits.guesses:
            wait = max(1, round(wrong[0] + self._limits.guesses_s - time.monotonic()))
            raise RequestError(429, f"too many wrong tokens from your address; try again in {wait} s", retry_s=wait)
        if _same(token, self._token):
            self._wrong.pop(address, None)
            return True
        self._wrong.pop(address, None)  # inserted again at the end: the table is in order of the last wrong token
        if len(self._wrong) >= MAX_ADDRESSES:
            self._wrong.pop(next(iter(self._wrong)))
        wrong.append(time.monotonic())
        self._wrong[address] = wrong
        return False

    def _recent(self, address: str) -> deque[float]:
        """Times of the wrong tokens of the last `guesses_s` seconds."""
        times, since = self._wrong.get(address, deque()), time.monotonic() - self._limits.guesses_s
        while times and times[0] < since:
            times.popleft()
        return times


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


def _keyed(token: str) -> bytes:
    return hmac.digest(token.encode(), b"ballcast session", hashlib.sha256).hex().encode()


def _same(given: str, right: bytes) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right)


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

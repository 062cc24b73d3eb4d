"""Who may come in: a token in a header, or a cookie that a right token was given for; guessing is slowed down."""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import deque
from http.cookies import CookieError, SimpleCookie

from ballcast.core.errors import InputError
from ballcast.web.settings import Limits, RequestError

COOKIE = "ballcast_session"
LEAST = 16  # characters of a token somebody chose
REMEMBERED = 10_000  # addresses whose wrong guesses are counted at once


def new_token() -> str:
    return secrets.token_urlsafe(24)


def check_token(token: str) -> str:
    if len(token) < LEAST or not token.isascii() or not token.isprintable():
        raise InputError(f"--token must be at least {LEAST} plain characters; leave it out to have one made")
    return token


class TokenAuth:
    """Checks tokens in constant time and counts wrong ones by address.

    The cookie holds no token but a keyed hash of it: it opens this server, also after a restart, and nothing else.
    """

    def __init__(self, token: str | None, limits: Limits) -> None:
        self._token = None if token is None else token.encode()
        self._session = b"" if token is None else _keyed(token)
        self._limits = limits
        self._wrong: dict[str, deque[float]] = {}

    @property
    def open(self) -> bool:
        """Nobody is asked."""
        return self._token is None

    @property
    def session(self) -> str:
        """The cookie's value."""
        return self._session.decode()

    def lets_in(self, authorization: str, cookie: str, client: str) -> bool:
        """Whether a request with these headers may pass; a `Refused` (429) for an address that guesses.

        An address that has guessed too often may not even try: else it would learn from the answers.
        """
        if self._token is None:
            return True
        if _same(_cookie(cookie), self._session):
            return True
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.opens(given.strip(), client)

    def opens(self, token: str, client: str) -> bool:
        """Whether this is the token; a wrong one is counted against the address."""
        if self._token is None:
            return True
        who = network(client)
        wrong = self._recent(who)
        if len(wrong) >= self._limits.guesses:
            wait = max(1, round(wrong[0] + self._limits.guesses_s - time.monotonic()))
            raise RequestError(429, f"too many wrong tokens from your address; try again in {wait} s", retry_s=wait)
        if _same(token, self._token):
            self._wrong.pop(who, None)
            return True
        if len(self._wrong) >= REMEMBERED:  # forget the one that has been quiet the longest
            self._wrong.pop(min(self._wrong, key=lambda k: self._wrong[k][-1]))
        wrong.append(time.monotonic())
        self._wrong[who] = wrong
        return False

    def _recent(self, who: str) -> deque[float]:
        times, since = self._wrong.get(who, deque()), time.monotonic() - self._limits.guesses_s
        while times and times[0] < since:
            times.popleft()
        return times


def network(client: str) -> str:
    """Who is behind an address: an IPv6 host has 2⁶⁴ addresses of its own, which count as one."""
    try:
        address = ipaddress.ip_address(client.split("%")[0])  # without the interface of a link-local one
    except ValueError:
        return client
    if address.version == 4:
        return client
    mapped = address.ipv4_mapped  # IPv4 that comes in where IPv6 is listened for
    return str(mapped or ipaddress.ip_network((address, 64), strict=False))


def _keyed(token: str) -> bytes:
    return hmac.digest(token.encode(), b"ballcast session", hashlib.sha256).hex().encode()


def _same(given: str, right: bytes) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right)


def _cookie(header: str) -> str:
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

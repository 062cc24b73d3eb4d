"""Middleware in front of all routes: host and origin checks, authentication, body limits, security headers."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ballcast_server.access.auth import TokenAuth, network
from ballcast_server.settings import Limits, RequestError


class UnreadBody:
    """A request's `receive` that records whether the body has been read to its end (`over`)."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.over = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.over = not message.get("more_body", False)  # end of the body, or the client has disconnected
        return message

    async def discard(self, seconds: float, most: int) -> None:
        """Read and drop the rest of the body, for at most `seconds` and about `most` bytes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.over and most > 0:
                    most -= len((await self()).get("body", b""))


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
READS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC = re.compile(r"/login|/api/login|/api/health|/healthz|/readyz|/palette\.css|/static/[a-z_]+\.(css|js|svg)")
STREAMED = re.compile(
    r"/api/uploads|/api/feeds|/api/jobs/[0-9a-f]{16}/labels"
)  # routes that limit their bodies themselves
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")


def user_of(scope: Scope) -> str:
    """The user of a request: the address of the client, of IPv6 its network."""
    return network(scope["client"][0]) if scope.get("client") else "local"


class _ClientStalled(Exception):
    """The client has stopped reading the response."""


class Guard:
    """ASGI middleware that rejects requests before they reach a route.

    Args:
        app: the application.
        auth: checks tokens and cookies.
        hosts: accepted host names, besides IP addresses, localhost and the name of this machine.
        limits: time and size limits.
    """

    def __init__(self, app: ASGIApp, *, auth: TokenAuth, hosts: Iterable[str], limits: Limits) -> None:
        self._app = app
        self._auth = auth
        self._limits = limits
        machine = socket.gethostname().lower()
        self._hosts = {"localhost", machine, f"{machine}.local", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        closes = False
        receive = body = UnreadBody(receive)

        async def guarded_send(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                closes = response_headers.get("connection") == "close"
                for name, value in HEADERS.items():
                    response_headers.setdefault(name, value)
                response_headers.setdefault("Cache-Control", "no-store")
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            try:
                if last and closes and not body.over:  # read the rest, else the response is lost
                    await asyncio.wait_for(send({**message, "more_body": True}), self._limits.stall_s)
                    await body.discard(self._limits.discard_s, self._limits.discard_bytes)
                    message = {"type": "http.response.body", "body": b""}
                await asyncio.wait_for(send(message), self._limits.stall_s)
            except TimeoutError:
                raise _ClientStalled from None

        rejection: Response | None
        try:
            rejection = self._reject(scope, headers)
            if rejection is None and scope["method"] not in READS and not STREAMED.fullmatch(scope["path"]):
                receive = _replay(await self._small_body(receive), receive)
        except RequestError as error:
            rejection = error_response(error)
        with suppress(_ClientStalled):  # the server closes the connection of an unfinished response
            await (rejection or self._app)(scope, receive, guarded_send)

    def _reject(self, scope: Scope, headers: Headers) -> Response | None:
        """The response to a request that may not pass (or a RequestError); None if it may pass."""
        path = scope["path"]
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])
        if size > self._limits.header_bytes or len(scope["headers"]) > self._limits.header_count:
            raise RequestError(431, "the request's address and headers are too large; delete the site's cookies")
        if not self._is_known_host(headers.get("host", "")):
            raise RequestError(421, "unknown host name; the server's operator can allow it with --allow-host")
        if scope["method"] not in READS or path.startswith("/api/"):
            _check_origin(headers)
        if PUBLIC.fullmatch(path):
            return None
        role = self._auth.authenticate(headers.get("authorization", ""), headers.get("cookie", ""), user_of(scope))
        if role == "viewer" and scope["method"] not in READS and path != "/api/logout":
            raise RequestError(403, "your token is a viewer's, which may look but not change anything")
        if role is not None:
            return None
        if scope["method"] == "GET" and not path.startswith("/api/"):
            return RedirectResponse("/login", 303)
        if headers.get("authorization"):
            raise RequestError(401, "wrong token: send the one that the server printed, as 'Authorization: Bearer …'")
        raise RequestError(401, "not authenticated: send the token as 'Authorization: Bearer …', or log in at /login")

    async def _small_body(self, receive: Receive) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):  # in all: a byte now and then does not help
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        raise RequestError(413, "the request's body is too large")
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RequestError(408, "the request's body did not arrive in time") from None

    def _is_known_host(self, host: str) -> bool:
        """Whether a Host header is an IP address, which DNS rebinding cannot fake, or one of our names."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].lower().rstrip(".")
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in self._hosts
        return True


def _check_origin(headers: Headers) -> None:
    """Raise RequestError 403 for a request from a page of another site."""
    origin = headers.get("origin")
    host = headers.get("host", "").lower()
    try:
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host
    except ValueError:  # such as http://[
        foreign = True
    if foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise RequestError(403, "requests from pages of other sites are rejected")


def error_response(error: RequestError) -> Response:
    """The JSON response of an error."""
    headers = dict(error.headers)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (408, 413, 431):
        headers["Connection"] = "close"  # the rest of the body is not read
    return JSONResponse({"error": error.message}, error.status, headers)


def _replay(body: bytes, rest: Receive) -> Receive:
    """A `receive` that returns the whole body at once, then the messages of `rest` (a disconnect)."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return first.pop() if first else await rest()

    return receive

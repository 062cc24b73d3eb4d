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

from ballcast.web.auth import TokenAuth, network
from ballcast.web.settings import Limits, RequestError


class UnreadBody:
    """A request's `receive`, which knows whether the body has been read to its end (`over`)."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.over = receive, False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.over = not message.get("more_body", False)  # the end of the body, or that the client went
        return message

    async def discard(self, seconds: float, most: int) -> None:
        """Read on to the end, but no longer than that, and not more bytes."""
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
ANYONE = re.compile(r"/login|/api/login|/api/health|/palette\.css|/static/[a-z_]+\.(css|js|svg)")
STREAMED = re.compile(r"/api/uploads|/api/jobs/[0-9a-f]{16}/labels")  # these count their bodies themselves
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")


def user_of(scope: Scope) -> str:
    """Whose turn a request takes: the address it comes from, of IPv6 its network."""
    return network(scope["client"][0]) if scope.get("client") else "local"


class _Gone(Exception):
    """The client takes nothing any more."""


class Guard:
    """ASGI middleware; `hosts` are names besides addresses and localhost under which the server may be asked for."""

    def __init__(self, app: ASGIApp, *, auth: TokenAuth, hosts: Iterable[str], limits: Limits) -> None:
        self._app, self._door, self._limits = app, auth, limits
        machine = socket.gethostname().lower()
        self._hosts = {"localhost", machine, f"{machine}.local", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, closes = Headers(scope=scope), False
        receive = rest = UnreadBody(receive)

        async def careful(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                carried = MutableHeaders(scope=message)
                closes = carried.get("connection") == "close"
                for name, value in HEADERS.items():
                    carried.setdefault(name, value)
                carried.setdefault("Cache-Control", "no-store")
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            try:
                if last and closes and not rest.over:  # the response is whole, but the connection still open
                    await asyncio.wait_for(send({**message, "more_body": True}), self._limits.stall_s)
                    await rest.discard(self._limits.discard_s, self._limits.discard_bytes)
                    message = {"type": "http.response.body", "body": b""}
                await asyncio.wait_for(send(message), self._limits.stall_s)
            except TimeoutError:
                raise _Gone from None

        refusal: Response | None
        try:
            refusal = self._refusal(scope, headers)
            if refusal is None and scope["method"] not in READS and not STREAMED.fullmatch(scope["path"]):
                receive = _given(await self._small_body(receive), receive)
        except RequestError as refused:
            refusal = refusal_response(refused)
        with suppress(_Gone):  # the server closes the connection of a response that was broken off
            await (refusal or self._app)(scope, receive, careful)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """None: it may pass."""
        path = scope["path"]
        if not self._is_ours(headers.get("host", "")):
            raise RequestError(421, "unknown host name; the server's operator can allow it with --allow-host")
        if scope["method"] not in READS or path.startswith("/api/"):
            _check_origin(headers)
        if ANYONE.fullmatch(path):
            return None
        if self._door.lets_in(headers.get("authorization", ""), headers.get("cookie", ""), user_of(scope)):
            return None
        if scope["method"] == "GET" and not path.startswith("/api/"):
            return RedirectResponse("/login", 303)
        raise RequestError(401, "a token is needed: send it as 'Authorization: Bearer …', or log in at /login")

    async def _small_body(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            try:
                message = await asyncio.wait_for(receive(), self._limits.stall_s)
            except TimeoutError:
                raise RequestError(408, "the request's body did not come") from None
            body += message.get("body", b"")
            if len(body) > self._limits.body_bytes:
                raise RequestError(413, "the request's body is too large")
            if not message.get("more_body", False):
                return bytes(body)

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header is an address, which no name server can bend, or one of our names."""
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
    origin = headers.get("origin")
    elsewhere = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if elsewhere or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise RequestError(403, "requests from pages of other sites are not answered")


def refusal_response(refused: RequestError) -> Response:
    headers = dict(refused.headers)
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refused.status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    return JSONResponse({"error": refused.sentence}, refused.status, headers)


def _given(body: bytes, rest: Receive) -> Receive:
    """Gives the whole body at once, then what else comes (that the client went)."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return first.pop() if first else await rest()

    return receive

"""The open connections: how many there may be, in all and of one client, and how long one may take to ask.

uvicorn limits neither. `Connections` stands between it and its sockets, as the protocol that passes everything on to
uvicorn's, and between it and the application, where it sees requests begin and end.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ballcast_server.access.auth import network
from ballcast_server.settings import Limits

_BUSY_TEXT = b'{"error": "too many connections; close some, or try again later"}'
_BUSY = (
    b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Type: application/json\r\nRetry-After: 10\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BUSY_TEXT), _BUSY_TEXT)
)


class Connections:
    """The open connections, in order of their opening.

    A new one over a limit takes the place of the oldest that waits for a request. If none does, the new one is refused.
    Trusted proxies, which connect for many users, count for the total only.

    Args:
        limits: numbers of connections, and time for a request's headers.
        proxies: addresses and networks of trusted proxies.
    """

    def __init__(self, limits: Limits, proxies: Iterable[str] = ()) -> None:
        self.headers_s = limits.headers_s
        self._limits = limits
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]
        self._all: dict[tuple[str, int], Connection] = {}  # by the client's address and port
        self._of_user: dict[str, dict[tuple[str, int], Connection]] = {}

    def protocol(self, **given: Any) -> "Connection":
        """The protocol of a new connection; uvicorn's setting `http`. given: what uvicorn's protocol needs."""
        return Connection(H11Protocol(**given), self)

    def counting(self, app: ASGIApp) -> ASGIApp:
        """The application, with the beginning and end of each request noted at its connection."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            connection = self._all.get(scope.get("client") or ("", 0))
            if connection is None:
                await app(scope, receive, send)
                return
            connection.begin_request()
            try:
                await app(scope, receive, send)
            finally:
                connection.end_request()

        return counted

    def add(self, connection: "Connection") -> bool:
        """Count a connection; returns False if there are too many and none of them waits for a request."""
        address, _ = connection.client
        theirs = self._of_user.setdefault(network(address), {})
        admitted = (
            len(theirs) < self._limits.connections_a_user
            or self._is_proxy(address)
            or _close_oldest_idle(theirs.values())
        ) and (len(self._all) < self._limits.connections or _close_oldest_idle(self._all.values()))
        theirs[connection.client] = self._all[connection.client] = connection
        return admitted

    def remove(self, connection: "Connection") -> None:
        """Count a connection no longer."""
        if self._all.get(connection.client) is not connection:  # its client has come again from the same port
            return
        user = network(connection.client[0])
        del self._all[connection.client]
        del self._of_user[user][connection.client]
        if not self._of_user[user]:
            del self._of_user[user]

    def _is_proxy(self, address: str) -> bool:
        try:
            return any(ipaddress.ip_address(address) in proxy for proxy in self._proxies)
        except ValueError:
            return False

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> "Iterator[Connection]":
        return iter(list(self._all.values()))


def _close_oldest_idle(connections: "Iterable[Connection]") -> bool:
    for connection in connections:
        if connection.idle and not connection.transport.is_closing():
            connection.transport.abort()
            return True
    return False


class Connection(asyncio.Protocol):
    """One connection. It is closed if it takes too long until the headers of a request are complete.

    Args:
        http: uvicorn's protocol, to which everything is passed on.
        connections: all connections.

    Attributes:
        client: address and port of the client, as in the scope of its requests.
    """

    transport: asyncio.Transport

    def __init__(self, http: asyncio.Protocol, connections: Connections) -> None:
        self.client = ("", 0)
        self._http = http
        self._connections = connections
        self._requests = 0  # in progress
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is in progress; one is from the end of its headers to that of its response."""
        return not self._requests

    def begin_request(self) -> None:
        """The headers of a request are complete."""
        self._requests += 1
        self._stop_timer()

    def end_request(self) -> None:
        """A request was answered."""
        self._requests -= 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer, or refuse the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        address, port, *_ = transport.get_extra_info("peername") or ("local", 0)
        self.client = (str(address), int(port))
        self._http.connection_made(transport)
        if not self._connections.add(self):
            transport.write(_BUSY)
            transport.close()
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Pass data on; the first of a further request starts the timer, more do not start it again."""
        if not self.transport.is_closing():
            self._start_timer()
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._http.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Stop the timer, and pass it on."""
        self._stop_timer()
        self._connections.remove(self)
        self._http.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._http.resume_writing()

    def _start_timer(self) -> None:
        if self.idle and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._connections.headers_s, self._close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._timer = None
        if self.idle and not self.transport.is_closing():
            self.transport.close()

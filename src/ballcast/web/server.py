"""Running the application: routes behind the guard, one socket, bounded connections, a clean end."""

import asyncio
import errno
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ballcast import __version__
from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast.web import job_routes
from ballcast.web import site_routes as site_routes
from ballcast.web.guard import Guard, refusal_response
from ballcast.web.service import Service
from ballcast.web.settings import RequestError
from ballcast.web.uploads import FULL

DESCRIPTION = """Anticipate football: which ball actions come in the next 5 seconds of a video or a stream, and when.

Hand in a video, follow its events, take the timeline. Times are milliseconds of the video; confidences are honest
chances. Errors are {"error": one sentence}."""


def build_app(service: Service) -> ASGIApp:
    """The ASGI application of a house; `/openapi.json` describes it, `/docs` shows that."""
    app = FastAPI(title="ballcast", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(job_routes.router)
    app.include_router(site_routes.router)
    app.include_router(site_routes.pages)
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(BallcastError, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    for full in (OSError, sqlite3.Error):
        app.add_exception_handler(full, _perhaps_full)
    app.add_exception_handler(Exception, _failed)  # which is logged too
    return Guard(app, auth=service.auth, hosts=service.settings.hosts, limits=service.limits)


async def _failed(*_: object) -> Response:
    return refusal_response(RequestError(500, "an error in the server; whoever runs it finds more in its log"))


async def _perhaps_full(_: Request, error: Exception) -> Response:
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if full or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return refusal_response(RequestError(507, FULL))
    raise error


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return refusal_response(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "the request"
        return refusal_response(RequestError(422, f"{place}: {first['msg']}"))
    if isinstance(error, HTTPException):
        return refusal_response(RequestError(error.status_code, str(error.detail)))
    if isinstance(error, NoSpace):
        return refusal_response(RequestError(507, FULL))
    return refusal_response(RequestError(500, request.app.state.service.shown(str(error))))


GRACE_S = 3  # for responses under way when the server is to stop


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens soon; port 0: any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"{host}:{port}: cannot be listened on: {error.strerror}; give another --host or --port"
        ) from None
    return listener


class Server(uvicorn.Server):
    """Ends streams first when it is told to stop: else their viewers' connections would be waited for."""

    def __init__(self, service: Service) -> None:
        self._house = service
        super().__init__(
            uvicorn.Config(
                build_app(service),
                http=_protocol(service.limits.headers_s),
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=service.limits.connections,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=32 << 10,
                backlog=512,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.end()

    def end(self) -> None:
        """From any thread: stop soon."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._house.close_channels)
        await super().shutdown(sockets)


async def serve(
    service: Service, listener: socket.socket, ready: Callable[[Server], None] = lambda server: None
) -> None:
    """Serve until told to stop; `ready` is called when the house is at work, just before the first request."""
    with service.opened(asyncio.get_running_loop()):
        server = Server(service)
        _at_stops(server.handle_exit)  # uvicorn does so too, but only later, and gives them back before it returns
        ready(server)
        await server.serve(sockets=[listener])
        _at_stops(signal.SIG_IGN)  # one more Ctrl-C while the house is closed would only break that off


def _at_stops(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """What Ctrl-C and SIGTERM do from now on."""
    if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be set, nor do they arrive
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, handler)


@contextmanager
def running(service: Service, listener: socket.socket) -> Iterator[tuple[Server, threading.Thread]]:
    """The server in a thread of its own, stopped at the end of the block as by Ctrl-C: for tests and measurements."""
    started: list[Server] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    def note(server: Server) -> None:
        started.append(server)
        ready.set()

    def run() -> None:
        try:
            asyncio.run(serve(service, listener, note))
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    ready.wait()
    try:
        if not started:
            raise failed[0]
        yield started[0], thread
    finally:
        for server in started:
            server.end()
        thread.join(30)
        listener.close()
    if thread.is_alive():
        raise RuntimeError("the server does not stop")


def _protocol(headers_s: float) -> type[H11Protocol]:
    """uvicorn's, but a connection whose request's headers are not there in time is closed."""

    class TimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """The clock runs while no request is there; a few bytes now and then do not set it back."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            elif self._timer is None:
                self._timer = self.loop.call_later(headers_s, self._close)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close(self) -> None:
            self._timer = None
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self.transport.close()

    return TimeoutProtocol

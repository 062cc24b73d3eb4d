"""The ASGI application and the process that serves it: error handlers, one socket, limits, clean shutdown."""

import asyncio
import errno
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ballcast import __version__
from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast_server.settings import FULL, RequestError
from ballcast_server.web import feed_routes, job_routes, monitoring, render_routes, site_routes, stream_routes
from ballcast_server.web.connections import Connections
from ballcast_server.web.guard import Guard, error_response
from ballcast_server.web.service import Service

DESCRIPTION = """Anticipate football: which ball actions come in the next 5 seconds of a video or a stream, and when.

Submit a video, follow its events, download the timeline. Times are milliseconds of the video; confidences are
probabilities. Errors are {"error": one sentence}."""


def build_app(service: Service) -> ASGIApp:
    """Build the ASGI application of a service; `/openapi.json` describes it, `/docs` displays the description."""
    app = FastAPI(title="ballcast", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.service = service
    app.include_router(job_routes.router)
    app.include_router(render_routes.router)
    app.include_router(feed_routes.router)
    app.include_router(feed_routes.pages)
    app.include_router(site_routes.router)
    app.include_router(stream_routes.router)
    app.include_router(monitoring.router)
    app.include_router(site_routes.pages)
    app.add_exception_handler(RequestError, _on_error)
    app.add_exception_handler(BallcastError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_error)
    app.add_exception_handler(HTTPException, _on_error)
    for kind in (OSError, sqlite3.Error):
        app.add_exception_handler(kind, _on_disk_error)
    app.add_exception_handler(Exception, _on_crash)  # starlette logs it too
    guard = Guard(app, auth=service.auth, hosts=service.settings.hosts, limits=service.limits)
    proxies = list(service.settings.proxies)
    return ProxyHeadersMiddleware(guard, proxies) if proxies else guard  # type: ignore[arg-type, return-value]


async def _on_crash(*_: object) -> Response:
    return error_response(RequestError(500, "internal server error; see the server's log"))


async def _on_disk_error(_: Request, error: Exception) -> Response:
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if full or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return error_response(RequestError(507, FULL))
    raise error


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return error_response(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "the request"
        return error_response(RequestError(422, f"{place}: {first['msg']}"))
    if isinstance(error, HTTPException):
        return error_response(RequestError(error.status_code, str(error.detail)))
    if isinstance(error, NoSpace):
        return error_response(RequestError(507, FULL))
    return error_response(RequestError(500, request.app.state.service.jobs.hide_folders(str(error))))


GRACE_S = 3  # for open responses at shutdown


def bind(host: str, port: int) -> socket.socket:
    """Bind a TCP socket.

    Args:
        host: IPv4 or IPv6 address, or a host name.
        port: 0: any free one.

    Returns:
        The bound socket, which does not listen yet.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}; give another --host or --port") from None
    return listener


class Server(uvicorn.Server):
    """uvicorn's server, which ends streams first at shutdown: else it would wait for their viewers' connections."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.connections = Connections(service.limits, service.settings.proxies)
        super().__init__(
            uvicorn.Config(
                self.connections.counting(build_app(service)),
                http=self.connections.protocol,  # type: ignore[arg-type]  # a function that makes one
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=service.limits.header_bytes,  # the guard checks those that are complete
                backlog=2048,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGINT and SIGTERM."""
        self.end()

    def end(self) -> None:
        """Ask the server to stop; may be called from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and jobs, then the server."""
        await asyncio.to_thread(self._service.close_channels)
        await super().shutdown(sockets)


async def serve(
    service: Service, listener: socket.socket, ready: Callable[[Server], None] = lambda server: None
) -> None:
    """Serve until SIGINT, SIGTERM or `Server.end`.

    Args:
        service: what is served.
        listener: a bound socket.
        ready: called just before the first request is accepted.
    """
    _allow_descriptors(2 * service.limits.connections)
    with service.opened(asyncio.get_running_loop()):
        server = Server(service)
        _on_signals(server.handle_exit)  # uvicorn sets its handlers later, and restores the old ones before it returns
        ready(server)
        await server.serve(sockets=[listener])
        _on_signals(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the shutdown


def _allow_descriptors(count: int) -> None:
    """Raise the number of files and sockets this process may open; often only 1024, of up to a million."""
    with suppress(ImportError, ValueError, OSError):  # Windows; a system that does not allow it
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < allowed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _on_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set the handler of SIGINT and SIGTERM."""
    if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, handler)


@contextmanager
def running(service: Service, listener: socket.socket) -> Iterator[tuple[Server, threading.Thread]]:
    """Run the server in a thread, for tests and benchmarks; it stops at the end of the block as after Ctrl-C."""
    started: list[Server] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    def on_ready(server: Server) -> None:
        started.append(server)
        ready.set()

    def run() -> None:
        try:
            asyncio.run(serve(service, listener, on_ready))
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

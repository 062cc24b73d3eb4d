"""What every server of the tests is: a port of this machine, served while the `with` block lasts."""

import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Self


class LocalServer:
    """Serves `handler`, a thread a connection, from entering the block to leaving it.

    port: one that was free. over: set when the block is left; a handler that holds its connection open waits for it.
    """

    def __init__(
        self,
        handler: Callable[..., BaseRequestHandler],
        kind: type[ThreadingTCPServer] | type[ThreadingHTTPServer] = ThreadingTCPServer,
    ) -> None:
        self.over = threading.Event()
        self._server = kind(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

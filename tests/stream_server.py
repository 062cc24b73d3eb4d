"""Servers on this machine that stream a video, and break off where they are told to."""

import socketserver
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class PieceServer:
    """tcp://…: the first connection gets the first piece and is closed, the second the second, … the last is held open
    if `hold`, silent. Connections after the last piece are closed at once.
    """

    def __init__(self, pieces: list[bytes], *, hold: bool = False) -> None:
        self.pieces, self.taken = pieces, 0
        self._over = threading.Event()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                number, outer.taken = outer.taken, outer.taken + 1
                if number < len(outer.pieces):
                    try:
                        self.request.sendall(outer.pieces[number])
                    except OSError:
                        return
                    if hold and number == len(outer.pieces) - 1:
                        outer._over.wait(30)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"tcp://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


class FolderServer:
    """http://…: the files of a folder; those named in `missing` are not found, until they are taken out of it."""

    def __init__(self, folder: Path) -> None:
        self.missing: set[str] = set()
        self.asked: list[str] = []
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.path.lstrip("/") in outer.missing:
                    self.send_error(404)
                else:
                    super().do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def until(condition: Any, timeout: float = 10.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False

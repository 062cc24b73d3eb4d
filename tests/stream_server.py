"""Servers on this machine that stream a video, and break off where they are told to."""

import socketserver
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from local_server import LocalServer


class PieceServer(LocalServer):
    """tcp://…: the first connection gets the first piece and is closed, the second the second, … the last is held open
    if `hold`, silent. Connections after the last piece are closed at once.
    """

    def __init__(self, pieces: list[bytes], *, hold: bool = False) -> None:
        self.pieces, self.taken = pieces, 0
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
                        outer.over.wait(30)

        super().__init__(Handler)
        self.address = f"tcp://127.0.0.1:{self.port}"


class DrippingServer(LocalServer):
    """tcp://…: every connection gets the pieces one by one, `every_s` seconds apart."""

    def __init__(self, pieces: list[bytes], *, every_s: float) -> None:
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                for piece in pieces:
                    try:
                        self.request.sendall(piece)
                    except OSError:
                        return
                    if outer.over.wait(every_s):
                        return

        super().__init__(Handler)
        self.address = f"tcp://127.0.0.1:{self.port}"


class FolderServer(LocalServer):
    """http://…: the files of a folder; those named in `missing` are not found, until they are taken out of it."""

    def __init__(self, folder: Path) -> None:
        self.missing: set[str] = set()
        self.asked: list[str] = []
        self.redirects: dict[str, str] = {}  # path → address
        outer = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.path.lstrip("/") in outer.missing:
                    self.send_error(404)
                elif self.path in outer.redirects:
                    self.send_response(302)
                    self.send_header("Location", outer.redirects[self.path])
                    self.end_headers()
                else:
                    super().do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(partial(Handler, directory=str(folder)), ThreadingHTTPServer)
        self.address = f"http://127.0.0.1:{self.port}"


def until(condition: Any, timeout: float = 10.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False

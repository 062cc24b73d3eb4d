"""A stand-in for the Hugging Face hub: it answers as the hub does, counts what it sends, and fails on command.

As on the hub, a large file is answered by a redirect to another host (the storage: here `localhost` instead of
`127.0.0.1`), with its size and sha256 in the headers of the redirect. What is asked of it about repositories,
and uploads, are in `hub_interface`.
"""

import hashlib
import json
import re
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hub_interface import Interface
from local_server import LocalServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_test"
BLOCK = 1 << 14


class Hub(LocalServer):
    """Use in a `with` block; give `env` to the process that should see it.

    To set: `files`, the content by path; `refuse`, a status and error code for every question; `cuts`, after how many
    bytes each of the next answers breaks off; `pause_s`, seconds between two blocks of 16 KiB; `ranges`, False to know
    no Range; `damaged`, what is really sent for a path; `upload_cuts`, after how many bytes each of the next uploads to
    the storage breaks off. To read: `sent`, the bytes of each path that went out; `asked`, one line for each request,
    with its Range and whether it carried a token; `private`, by repository; `stored`, uploads by sha256; `received`,
    bytes that came in for each; `commits`, messages.

    The token that may do everything is `hf_test`; without it, `private` repositories are not there.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}  # "datasets/owner/name/path" or, for models, "owner/name/path"
        self.damaged: dict[str, bytes] = {}
        self.refuse: tuple[int, str] | None = None
        self.cuts: list[int] = []
        self.pause_s = 0.0
        self.ranges = True
        self.sent: Counter[str] = Counter()
        self.asked: list[str] = []
        self.private: dict[str, bool] = {}  # "datasets/owner/name" or "owner/name"
        self.stored: dict[str, bytes] = {}
        self.received: Counter[str] = Counter()
        self.upload_cuts: list[int] = []
        self.commits: list[str] = []
        self.lock = threading.Lock()
        super().__init__(type("Handler", (_Handler,), {"hub": self}), ThreadingHTTPServer)
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        named = {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        return {**named, "NO_PROXY": "*", "no_proxy": "*"}

    def of(self, repo: str) -> dict[str, bytes]:
        """The files of a repository by their paths in it."""
        return {name.removeprefix(f"{repo}/"): c for name, c in self.files.items() if name.startswith(f"{repo}/")}

    def commit_of(self, repo: str) -> str:
        """The newest commit: the same for all that tests put into `files` themselves, another after each push."""
        if repo not in self.private:
            return COMMIT
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in self.of(repo).items()}
        return hashlib.sha1(json.dumps(digests, sort_keys=True).encode()).hexdigest()


class _Handler(Interface, BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        token = "token" if "Authorization" in self.headers else "anonymous"
        self.hub.asked.append(f"{self.command} {self.path} {self.headers.get('Range', '-')} {token}")
        if self.path.startswith("/storage/"):
            return self._send_file(self.path.removeprefix("/storage/"))
        if self.path.startswith("/upload/"):  # a signed address: the storage knows no tokens
            return self.store(self.path.removeprefix("/upload/"))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.hub.refuse:
            return self.refuse(*self.hub.refuse)
        if "Authorization" in self.headers and self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.refuse(401, "", "Invalid credentials in Authorization header")
        if self.path.startswith("/api/") or ".git/info/lfs" in self.path:
            return self.answer_interface(self.path.partition("?")[0], body)
        found = re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", self.path)
        if not found or not self.sees(found[1]):
            return self.refuse(404 if token == "token" else 401, "RepoNotFound")
        key, commit = f"{found[1]}/{found[3]}", self.hub.commit_of(found[1])
        if key not in self.hub.files or found[2] not in ("main", commit):
            return self.refuse(404, "EntryNotFound")
        content = self.hub.files[key]
        self.send_response(302)
        self.send_header("Location", f"http://localhost:{self.hub.port}/storage/{key}")
        self.send_header("X-Repo-Commit", commit)
        self.send_header("X-Linked-Size", str(len(content)))
        self.send_header("X-Linked-Etag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, key: str) -> None:
        content = self.hub.damaged.get(key, self.hub.files[key])
        start, stop = 0, len(content)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.hub.ranges else None
        if span:
            start, stop = int(span[1]), min(int(span[2] or stop - 1) + 1, len(content))
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = min(stop, start + self.hub.cuts.pop(0)) if self.hub.cuts else stop
        try:
            for at in range(start, end, BLOCK):
                block = content[at : min(at + BLOCK, end)]
                self.wfile.write(block)
                self.hub.sent[key] += len(block)
                time.sleep(self.hub.pause_s)
        except OSError:
            pass  # the other side is gone
        if end < stop:
            self.close_connection = True

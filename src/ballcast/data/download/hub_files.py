"""Resumable download of large files of data sets on the Hugging Face hub.

Ours because huggingface_hub does not resume a file that was cut: tens of gigabytes would start over. Its addresses,
token, session and errors are used; the bytes are requested with HTTP Range and checked against the hub's checksum.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,  # the root of httpx's errors, whichever of its versions the hub's library uses
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

from ballcast import __version__
from ballcast.core.errors import BallcastError
from ballcast.core.files import watching_space
from ballcast.core.hub import TRANSIENT, check_hub_id, explain_hub_errors

Tick = Callable[[int], Any]  # called with the number of bytes done since the last call

REQUEST_BYTES = 1 << 30  # of one request: the storage serves at most 50 GB at once, and its signed addresses expire
LIBRARY = {"library_name": "ballcast", "library_version": __version__}


class HubError(BallcastError):
    """The hub cannot be reached, or does not deliver the file."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a data set on the hub; `revision` is a commit, so that a resumed download gets the same bytes."""

    repo_id: str
    path: str
    revision: str
    size: int  # bytes
    checksum: str  # sha256 in hex

    @property
    def url(self) -> str:
        return hf_hub_url(self.repo_id, self.path, repo_type="dataset", revision=self.revision)


def look_up(repo_id: str, path: str) -> HubFile:
    """Look up size, checksum and commit of `path` in the data set `repo_id`, without downloading it."""
    check_hub_id(repo_id)
    with _explained(repo_id, path):
        found = get_hf_file_metadata(hf_hub_url(repo_id, path, repo_type="dataset"), **LIBRARY)  # type: ignore[arg-type]
    if found.size is None or not re.fullmatch("[0-9a-f]{64}", found.etag or ""):
        raise HubError(f"{constants.ENDPOINT}: gives no size and sha256 for {repo_id}/{path}, so it cannot be checked")
    return HubFile(repo_id, path, found.commit_hash or "main", found.size, str(found.etag))


def part_of(target: Path) -> Path:
    """Return the path for the bytes of `target` until they are complete and checked."""
    return target.with_name(target.name + ".part")


def fetch(file: HubFile, target: Path, *, retries: int = 5, tick: Tick = lambda count: None) -> None:
    """Download `file` to `target`, resuming an earlier, interrupted call.

    Args:
        file: from `look_up`.
        target: appears only when complete and checked. Its name should contain the checksum, so that a part
            of another version is never resumed.
        retries: how many times in a row a lost connection is tried again without receiving a byte.
        tick: called with the number of bytes: first those of the earlier call, then those received.
    """
    with _explained(file.repo_id, file.path), _Part(part_of(target), tick) as part:
        failures = 0
        while part.size < file.size:
            before = part.size
            try:
                _request_next(file, part)
            except (HTTPError, ConnectionError) as error:
                failures = 1 if part.size > before else failures + 1
                if failures > retries or not _is_temporary(error):
                    raise
                time.sleep(min(2.0**failures, 30.0))
        digest = part.digest.hexdigest()
    if digest != file.checksum:
        part.path.unlink()
        raise HubError(
            f"{file.path}: the download has the checksum {digest[:12]}… instead of the hub's {file.checksum[:12]}…; "
            "the damaged copy is removed, run again to fetch it"
        )
    os.replace(part.path, target)


def is_same(file: HubFile, path: Path, tick: Tick = lambda count: None) -> bool:
    """Whether the file at `path` has the bytes of `file`; `tick` is called with the bytes read."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            tick(len(chunk))
    return digest.hexdigest() == file.checksum


class _Part:
    """The file of the bytes received so far, open for appending, with their number and running checksum."""

    def __init__(self, path: Path, tick: Tick) -> None:
        self.path = path
        self.tick = tick
        self.digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> "_Part":
        self.file = self.path.open("a+b")
        self.file.seek(0)
        while chunk := self.file.read(1 << 20):
            self._count(chunk)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with watching_space(self.path):
            if kind is None:
                os.fsync(self.file.fileno())
            self.file.close()

    def add(self, chunk: bytes) -> None:
        with watching_space(self.path):
            self.file.write(chunk)
            self.file.flush()  # so that a kill loses no received bytes
        self._count(chunk)

    def start_over(self) -> None:
        self.file.truncate(0)
        self.tick(-self.size)
        self.digest = hashlib.sha256()
        self.size = 0

    def _count(self, chunk: bytes) -> None:
        self.digest.update(chunk)
        self.size += len(chunk)
        self.tick(len(chunk))


def _request_next(file: HubFile, part: _Part) -> None:
    """Request the next bytes and append them."""
    stop = min(part.size + REQUEST_BYTES, file.size)
    headers = build_hf_headers(**LIBRARY)  # type: ignore[arg-type]
    headers |= {"Range": f"bytes={part.size}-{stop - 1}", "Accept-Encoding": "identity"}
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", file.url, headers=headers, timeout=timeout, follow_redirects=True) as response:
        hf_raise_for_status(response)
        if response.status_code == 200 and part.size:
            part.start_over()  # the server does not support Range and sends the whole file
        elif response.status_code == 206 and not response.headers.get("Content-Range", "").startswith(
            f"bytes {part.size}-"
        ):
            raise HubError(f"{file.path}: the hub sent other bytes than requested; run again later")
        for chunk in response.iter_bytes():
            part.add(chunk[: file.size - part.size])
    if part.size < stop:
        raise ConnectionError("the response ended early")


def _is_temporary(error: Exception) -> bool:
    """Whether another try may succeed."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in TRANSIENT
    return not isinstance(error, OfflineModeIsEnabled)


def _explained(repo_id: str, path: str) -> AbstractContextManager[None]:
    what = f"{constants.ENDPOINT}/datasets/{repo_id}: cannot download {path}"
    return explain_hub_errors(what, "dataset", "run again, what has arrived is kept")

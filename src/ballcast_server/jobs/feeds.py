"""Event feeds that were sent: the files of each match in a folder, and the data of its page once it could be read."""

import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast_server.confined.feeds import PAGE, read_match
from ballcast_server.settings import Limits, RequestError

KEPT = 50  # matches; the oldest are removed
PROCESSES = 2  # that read feeds at once


class Feeds:
    """The matches of a server.

    Args:
        root: folder of all matches.
        limits: bounds on memory.
    """

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root = root
        self._limits = limits
        self._reading = threading.BoundedSemaphore(PROCESSES)

    def folder(self, feed_id: str) -> Path:
        """Folder of a match by its id, which must have been checked."""
        return self.root / feed_id

    def file_name(self, given: str) -> str:
        """The name under which a file is stored; providers are recognised by names too."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", given).lstrip(".") or "events"
        return f"events_{name}" if name == PAGE else name  # ours, which becomes the page

    def read(self, folder: Path) -> tuple[bool, str]:
        """Read the match of a folder.

        Args:
            folder: of the match.

        Returns:
            Whether it could be read, and if not, why.

        Raises:
            RequestError: 422, if it never will be.
        """
        with self._reading:
            try:
                needed = read_match(folder, self._limits.memory_bytes)
            except InputError as error:
                raise RequestError(422, _without_folder(str(error), folder)) from None
        return not needed, _without_folder(needed, folder)

    def page(self, feed_id: str) -> dict[str, Any]:
        """The data of a match's page; raises RequestError 404 if there is none."""
        path = self.folder(feed_id) / PAGE
        if not path.is_file():
            raise RequestError(404, "there is no such match; send its file again")
        return read_json(path, "page of a match")

    def remove_oldest(self) -> None:
        """Remove matches beyond `KEPT`."""
        found = sorted((path for path in self.root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for folder in found[:-KEPT]:
            shutil.rmtree(folder, ignore_errors=True)


def _without_folder(message: str, folder: Path) -> str:
    """A message without the folder's path."""
    return message.replace(f"{folder.absolute()}{os.sep}", "").replace(f"{folder}{os.sep}", "")

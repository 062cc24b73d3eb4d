"""Event feeds that were sent: the files of each match in a folder, and the data of its page once it could be read."""

import os
import re
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast_server.confined.feeds import PAGE, read_match, sent_files
from ballcast_server.jobs.store import Job
from ballcast_server.settings import Limits, RequestError

OWNER = ".owner"  # holds the user who sent the first file; names of files that are sent begin with no dot
PROCESSES = 2  # that read feeds at once


class Feeds:
    """The matches of a server.

    Args:
        root: folder of all matches.
        limits: bounds on memory, and on the matches that are kept.
    """

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root = root
        self._limits = limits
        self._reading = threading.BoundedSemaphore(PROCESSES)

    def folder(self, feed_id: str) -> Path:
        """Folder of a match by its id, which must have been checked."""
        return self.root / feed_id

    def new(self, user: str) -> str:
        """Make the folder of a new match; returns its id."""
        feed_id = Job.new_id()
        self.folder(feed_id).mkdir(parents=True)
        (self.folder(feed_id) / OWNER).write_text(user)
        return feed_id

    def check_addition(self, feed_id: str, user: str) -> None:
        """Raise RequestError unless the user may add a file to a match: 404 if it is another's, 429 if it has many."""
        folder = self.folder(feed_id)
        most = self._limits.feed_files
        if _owner(folder) != user:
            raise RequestError(404, "there is no such match; send its first file again")
        if len(sent_files(folder)) >= most:
            raise RequestError(429, f"the match has {most} files; send it again from the first")

    def new_file(self, feed_id: str, given: str) -> Path:
        """Make an empty file of a match, named as it was sent: providers are recognised by names too.

        Raises:
            RequestError: 409, the match has a file of this name.
        """
        name = re.sub(r"[^A-Za-z0-9._-]", "_", given).lstrip(".") or "events"
        name = f"events_{name}" if name == PAGE else name  # ours, which becomes the page
        path = self.folder(feed_id) / name
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            raise RequestError(409, f"the match has a file {name} already; give this one another name") from None
        return path

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
        """Remove matches until no user, and all users together, have more than are kept.

        Of all users together, the oldest of the user with the most is removed: nobody displaces another's.
        """
        feeds = sorted((path for path in self.root.iterdir() if path.is_dir()), key=_modified)
        owners = {path: _owner(path) for path in feeds}
        counts = Counter(owners.values())
        while feeds:
            user, most = counts.most_common(1)[0]
            if most <= self._limits.feeds_a_user and len(feeds) <= self._limits.feeds:
                return
            oldest = next(path for path in feeds if owners[path] == user)
            shutil.rmtree(oldest, ignore_errors=True)
            feeds.remove(oldest)
            counts[user] -= 1


def _modified(folder: Path) -> float:
    """When a folder was changed; 0 if another request has removed it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _owner(folder: Path) -> str:
    """The user whose match it is; "" if there is none, or an earlier version stored it."""
    try:
        return (folder / OWNER).read_text()
    except OSError:
        return ""


def _without_folder(message: str, folder: Path) -> str:
    """A message without the folder's path."""
    return message.replace(f"{folder.absolute()}{os.sep}", "").replace(f"{folder}{os.sep}", "")

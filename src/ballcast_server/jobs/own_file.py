"""Files of the server's own folders, which are served: links in them are not followed."""

import errno
import os
import stat
from pathlib import Path


def is_own_file(path: Path) -> bool:
    """Whether a path in a job's folder is a regular file, and neither it nor the folder a link to elsewhere."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and stat.S_ISDIR(path.parent.lstat().st_mode)
    except OSError:
        return False


def open_own_file(path: Path) -> int:
    """Open a file of a job's folder for reading, without following links.

    Args:
        path: of the file.

    Returns:
        Its descriptor.

    Raises:
        OSError: it is not there, or is not a regular file.
    """
    if not hasattr(os, "O_NOFOLLOW"):  # Windows
        if not is_own_file(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(path.parent, flags | os.O_DIRECTORY)
    try:
        file = os.open(path.name, flags | os.O_NONBLOCK, dir_fd=folder)  # not waiting for a pipe's other end
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return file

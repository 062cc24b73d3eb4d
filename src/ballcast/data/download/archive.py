"""AES-encrypted zips: the password is checked first, and no member may be unpacked outside its folder."""

import errno
import lzma
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import pyzipper

from ballcast.core.errors import InputError
from ballcast.core.files import replacing

PASSWORD_CHECKS = 3  # members the password is tried on, since one of them may be damaged
LARGEST_RATIO = 200  # of unpacked to packed bytes; videos hardly shrink, so a larger ratio is a zip bomb


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the archive: its path, relative and checked, and its unpacked size in bytes."""

    path: PurePosixPath
    size: int
    info: Any


class Archive:
    """An open archive; use it in a `with` block.

    Args:
        path: the zip.
        password: for its encrypted members.

    Raises `InputError` when the file is no zip, or when a member's name or kind is not safe to unpack.
    """

    def __init__(self, path: Path, *, password: str) -> None:
        self.path = path
        with self._broken("its directory cannot be read"):
            self._zip = pyzipper.AESZipFile(path)
        try:
            self._zip.setpassword(password.encode())
            self.members = [
                Member(_safe_path(path, info), info.file_size, info)
                for info in self._zip.infolist()
                if not info.is_dir()
            ]
            self._check_names_and_sizes()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> "Archive":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def check_password(self) -> None:
        """Try the password on the smallest members, so that a wrong one is found before gigabytes are unpacked."""
        smallest = sorted((m for m in self.members if m.info.is_encrypted), key=lambda m: m.size)[:PASSWORD_CHECKS]
        opened = [m for m in smallest if self._opens(m)]
        # AES zips check the password with two bytes: a wrong one passes on one member in 65 536.
        if 2 * len(opened) < len(smallest):
            raise InputError(
                f"{self.path}: the password is wrong; give the one that came with SoccerNet's NDA in SOCCERNET_PASSWORD"
            )
        for _ in self._chunks(smallest[0]) if smallest else ():
            pass

    def unpack(
        self,
        member: Member,
        target: Path,
        tick: Callable[[int], Any] = lambda count: None,
        written_with: Callable[[int], Any] = lambda checksum: None,
    ) -> None:
        """Write one member to `target`, which appears only when complete.

        `tick` is called with the bytes written, `written_with` before it appears, with its CRC-32: encrypted members
        have none in the archive.
        """
        written = checksum = 0
        with replacing(target) as temporary, temporary.open("wb") as file:
            for chunk in self._chunks(member):
                file.write(chunk)
                tick(len(chunk))
                written += len(chunk)
                checksum = zlib.crc32(chunk, checksum)
            if written != member.size:
                raise self._fault(f"{member.path} ends after {written} of {member.size} bytes")
            written_with(checksum)

    def _opens(self, member: Member) -> bool:
        with self._broken(f"{member.path} cannot be read"):
            try:
                self._zip.open(member.info).close()
            except NotImplementedError:
                raise
            except RuntimeError:  # what pyzipper raises for a wrong password
                return False
            return True

    def _chunks(self, member: Member) -> Iterator[bytes]:
        with self._broken(f"{member.path} is damaged"), self._zip.open(member.info) as source:
            while chunk := source.read(1 << 20):
                yield chunk

    def _check_names_and_sizes(self) -> None:
        if not self.members:
            raise self._fault("it holds no files")
        seen: set[PurePosixPath] = set()
        for member in self.members:
            if member.path in seen:
                raise self._fault(f"it holds {member.path} twice")
            seen.add(member.path)
        total = sum(m.size for m in self.members)
        packed = self.path.stat().st_size
        if total > LARGEST_RATIO * packed:
            raise InputError(
                f"{self.path}: refused, since {packed} bytes that unpack to {total} are no archive of videos"
            )

    def _fault(self, what: str) -> InputError:
        return InputError(f"{self.path}: the archive is broken ({what}); remove it and run again to fetch it")

    @contextmanager
    def _broken(self, what: str) -> Iterator[None]:
        """Turn every error that a damaged zip can cause in the libraries into one InputError."""
        try:
            yield
        except (
            pyzipper.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            struct.error,
            EOFError,
            ValueError,
            RuntimeError,
            KeyError,
        ):
            raise self._fault(what) from None
        except OSError as error:
            if error.errno not in (None, errno.EINVAL):  # EINVAL: a wrong offset; None: bz2's errors
                raise
            raise self._fault(what) from None


def _safe_path(archive: Path, info: Any) -> PurePosixPath:
    """Return the member's path below the folder it is unpacked to; an InputError if it would leave the folder."""
    name = info.filename.replace("\\", "/")  # some Windows tools write these
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or re.match("[A-Za-z]:", name):
        raise InputError(f"{archive}: refused, since its member {info.filename!r} would land outside the target folder")
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        raise InputError(f"{archive}: refused, since its member {info.filename!r} is a link or a device, not a file")
    return path

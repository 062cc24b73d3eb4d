"""Download SN-BAA from the hub: fetch, check and unpack its zips; an interrupted download is resumed.

Hidden files in `DIR/224p` during a download, named by the zip's checksum:

    .train.<sha>.zip.part   bytes received so far
    .train.<sha>.zip        the whole zip, checked
    .train.<sha>.tree       members unpacked so far, each complete, and a list of their checksums

When the last member is unpacked, a file that lists them all is added and the tree is renamed to `train`.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ballcast.core.checks import crc32_of, verify_checksum
from ballcast.core.errors import InputError, NoSpace
from ballcast.core.files import (
    exclusive_lock,
    free_space,
    parse_json,
    read_bytes,
    read_json,
    watching_space,
    write_json,
)
from ballcast.core.hub import SNBAA
from ballcast.data.download.archive import Archive, Member
from ballcast.data.download.hub_files import HubFile, fetch, is_same, look_up, part_of
from ballcast.data.labels.soccernet import RESOLUTIONS, SPLITS

MARK = ".ballcast-download.json"
RECORD = ".unpacked.txt"


def download(
    splits: Sequence[str],
    to: Path,
    *,
    password: Callable[[], str],
    resolution: str = "224p",
    repo_id: str = SNBAA,
    keep_zips: bool = False,
    retries: int = 5,
    log: Callable[[str], object] = lambda line: None,
) -> None:
    """Fetch and unpack splits of SN-BAA; complete ones are kept as they are, without a request to the hub.

    Args:
        splits: of `SPLITS`; empty: all four.
        to: the folder for `224p/train/clip_1/224p.mp4` and so on.
        password: called once, before anything is fetched, and only if there is something to do.
        resolution: of `RESOLUTIONS`.
        repo_id: the data set on the hub.
        keep_zips: keep the checked zips, as `to/224p/train.zip`.
        retries: how many times in a row a lost connection is tried again.
        log: called with one line for each split.
    """
    _check_choices(splits, SPLITS, "split")
    _check_choices([resolution], RESOLUTIONS, "resolution")
    pending = []
    for split in dict.fromkeys(splits or SPLITS):
        place = SplitPaths(to, resolution, split)
        if place.is_complete():
            place.clear()
            log(f"{place.folder}: complete already")
        else:
            pending.append(place)
    if not pending:
        return
    secret = password()
    jobs = [(place, look_up(repo_id, f"{resolution}/{place.split}.zip")) for place in pending]
    for place, file in jobs:
        place.check_free(file)
        if keep_zips and size_of(place.kept_zip) not in (-1, file.size):
            raise InputError(f"{place.kept_zip}: is another zip than the hub's; move it away, or leave out --keep-zips")
    check_space(to, most_needed(jobs, keep_zips=keep_zips), "fetch and unpack " + ", ".join(p.split for p in pending))
    for place, file in jobs:
        place.zip(file).parent.mkdir(parents=True, exist_ok=True)
        busy = f"{place.folder}: another download is at work on it; let it finish"
        with exclusive_lock(place.folder, place.lock, busy):
            place.clear(all_but=file)
            archive = _obtain(place, file, retries)
            if keep_zips and archive == place.zip(file):  # before the folder is complete: a kill would lose it
                archive = archive.replace(place.kept_zip)
            count = _unpack(place, file, archive, secret)
            if archive == place.zip(file):
                archive.unlink(missing_ok=True)  # another download may have found the folder complete
        log(f"{place.folder}: {count} files")


@dataclass(frozen=True, slots=True)
class SplitPaths:
    """The paths of one split below the user's folder, finished and during the download."""

    to: Path
    resolution: str
    split: str

    @property
    def folder(self) -> Path:
        return self.to / self.resolution / self.split

    @property
    def kept_zip(self) -> Path:
        """A zip under its plain name is the user's: it is used if its checksum is the hub's, and never removed."""
        return self.folder.with_name(f"{self.split}.zip")

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f".{self.split}.lock")

    def zip(self, file: HubFile) -> Path:
        return self.folder.with_name(f".{self.split}.{file.checksum[:12]}.zip")

    def tree(self, file: HubFile) -> Path:
        return self.folder.with_name(f".{self.split}.{file.checksum[:12]}.tree")

    def mark(self) -> dict[str, Any]:
        """Read the list of files that a finished download has written; empty if there is none."""
        path = self.folder / MARK
        if not path.is_file():
            return {}
        raw = read_bytes(path, "list of unpacked files")
        verify_checksum(raw, path, f"move {self.folder} away, and run again")
        mark = parse_json(raw, path, "list of unpacked files")
        if not (isinstance(mark, dict) and isinstance(mark.get("files"), dict)):
            raise InputError(f"{path}: is not what a download writes; remove it and {self.folder}, and run again")
        return mark

    def is_complete(self) -> bool:
        """Whether every file the mark lists is there with its size."""
        mark = self.mark()
        return bool(mark) and all(size_of(self.folder / path) == size for path, size in mark["files"].items())

    def check_free(self, file: HubFile) -> None:
        """Raise an InputError if the folder is there and is not from a download of this zip."""
        if self.folder.exists() and not (self.folder.is_dir() and not any(self.folder.iterdir())):
            if self.mark().get("sha256") != file.checksum:
                raise InputError(
                    f"{self.folder}: exists, but is not from this download; move it away or choose another --to"
                )
            if self.tree(file).exists():
                raise InputError(
                    f"{self.folder}: lacks files, and {self.tree(file)} is half unpacked; remove one of them"
                )

    def clear(self, all_but: HubFile | None = None) -> None:
        """Remove the hidden files of interrupted downloads, except those of the zip `all_but`, which is fetched now."""
        if all_but is None:
            with suppress(PermissionError):  # Windows: another download holds it
                self.lock.unlink(missing_ok=True)
        for old in self.folder.parent.glob(f".{self.split}.{'[0-9a-f]' * 12}.*"):
            if all_but is None or not old.name.startswith(f".{self.split}.{all_but.checksum[:12]}."):
                shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)


def most_needed(jobs: Sequence[tuple[SplitPaths, HubFile]], *, keep_zips: bool) -> int:
    """Estimate the most bytes of disk that the downloads still need at any time.

    The unpacked size of a zip is known only when it is there; video hardly shrinks in a zip, so the zip's size is used.
    """
    used = most = 0
    for place, file in jobs:
        theirs = size_of(place.kept_zip) == file.size
        there = file.size if theirs else max(size_of(place.zip(file)), size_of(part_of(place.zip(file))), 0)
        unpacked = sum(path.stat().st_size for path in place.tree(file).rglob("*") if path.is_file())
        used += file.size - there + max(0, file.size - unpacked)
        most = max(most, used)
        used -= 0 if keep_zips or theirs else file.size
    return most


def _obtain(place: SplitPaths, file: HubFile, retries: int) -> Path:
    """Return the path of the checked zip; fetch it if it is not there, or was damaged since."""
    with download_progress() as progress:
        for there in (place.zip(file), place.kept_zip):
            if size_of(there) == file.size:
                task = progress.add_task(f"check {file.path}", total=file.size)
                if is_same(file, there, partial(progress.advance, task)):
                    return there
        place.zip(file).unlink(missing_ok=True)  # damaged: the new one needs its room
        task = progress.add_task(f"fetch {file.path}", total=file.size)
        fetch(file, place.zip(file), retries=retries, tick=partial(progress.advance, task))
    return place.zip(file)


def _unpack(place: SplitPaths, file: HubFile, zip_path: Path, password: str) -> int:
    """Unpack the missing members and rename the tree to the split's folder; return the number of files."""
    tree = place.tree(file)
    with Archive(zip_path, password=password) as archive:
        targets = _targets(archive, place)
        archive.check_password()
        if place.mark():  # a finished folder with missing files: complete it
            os.rename(place.folder, tree)
        for left in tree.rglob(".*.tmp"):
            left.unlink()  # left by a killed run
        sums = Checksums(tree)
        missing = {path: m for path, m in targets.items() if not sums.hold(path, m.size)}
        check_space(tree, sum(m.size for m in missing.values()), f"unpack {place.split}")
        with download_progress() as progress:
            total, todo = (sum(m.size for m in group.values()) for group in (targets, missing))
            task = progress.add_task(f"unpack {file.path}", total=total, completed=total - todo)
            for path, member in missing.items():
                archive.unpack(member, tree / path, partial(progress.advance, task), partial(sums.add, path))
    mark: dict[str, Any] = {
        "repository": file.repo_id,
        "revision": file.revision,
        "zip": file.path,
        "sha256": file.checksum,
    }
    mark |= {"files": {str(path): m.size for path, m in targets.items()}}
    write_json(tree / MARK, {**mark, "crc32": {str(path): sums.known[str(path)] for path in targets}}, checksum=True)
    sums.record.unlink(missing_ok=True)
    os.rename(tree, place.folder)
    return len(targets)


class Checksums:
    """CRC-32 of the files unpacked to `tree`, kept in a line each until the mark holds them all.

    A line is written before its file appears, so that a file without one is not trusted.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.record = tree / RECORD
        self.known: dict[str, int] = {}
        with suppress(InputError, AttributeError, TypeError, ValueError):  # no mark, or a damaged one: unpacked again
            self.known |= dict(read_json(tree / MARK, "list of unpacked files").get("crc32", {}))
        with suppress(OSError, ValueError):
            lines = self.record.read_text("utf-8").split("\n")[:-1]  # what has no end was cut off
            self.known |= {line[9:]: int(line[:8], 16) for line in lines}

    def hold(self, path: PurePosixPath, size: int) -> bool:
        """Whether the file is there, whole."""
        file = self.tree / path
        return size_of(file) == size and self.known.get(str(path)) == crc32_of(file)

    def add(self, path: PurePosixPath, checksum: int) -> None:
        self.known[str(path)] = checksum
        with watching_space(self.record), self.record.open("a", encoding="utf-8") as file:
            file.write(f"{checksum:08x} {path}\n")


def _targets(archive: Archive, place: SplitPaths) -> dict[PurePosixPath, Member]:
    """Map paths below the split's folder to members, whichever folder of the zip holds the clips."""
    clips = [m.path for m in archive.members if m.path.match(f"clip_*/{place.resolution}.mp4")]
    roots = {path.parent.parent for path in clips}
    if len(roots) != 1:
        clip = f"clip_1/{place.resolution}.mp4"
        raise InputError(
            f"{archive.path}: has {len(roots)} folders with clips ({clip}) instead of one; is it the right file?"
        )
    root = roots.pop()
    targets = {m.path.relative_to(root) if m.path.is_relative_to(root) else m.path: m for m in archive.members}
    if len(targets) != len(archive.members):
        raise InputError(f"{archive.path}: two of its members have the same place below {root}; is it the right file?")
    return targets


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise `NoSpace` if the disk of `folder` has fewer than `needed` bytes; `what` is what they are needed for."""
    free = free_space(folder)
    if needed > free:
        raise NoSpace(
            f"{folder}: about {decimal(needed)} are needed to {what}, but only {decimal(free)} are free; "
            "free some or choose another folder with --to"
        )


def _check_choices(given: Sequence[str], known: Sequence[str], what: str) -> None:
    for value in given:
        if value not in known:
            raise InputError(f"{value!r} is not a {what} of the data set; choose from {', '.join(known)}")


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, −1 if there is none."""
    return path.stat().st_size if path.is_file() else -1


@contextmanager
def download_progress() -> Iterator[Progress]:
    """Show progress bars on stderr, if it is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress

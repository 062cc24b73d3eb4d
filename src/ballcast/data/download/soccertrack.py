"""Download SoccerTrack v2 from the hub: its files as they lie there, each checked; an interrupted download is resumed.

The hub's repository is gated: its owner grants access to an account that has asked for it on its page. Data: CC BY 4.0.
"""

import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.filesize import decimal

from ballcast.core.errors import InputError
from ballcast.core.files import file_lock, make_parents, read_json, write_json
from ballcast.core.hub import SOCCERTRACK
from ballcast.data.download.download import MARK, check_space, download_progress, size_of
from ballcast.data.download.hub_files import HubFile, fetch, is_same, list_files, part_of

# What `ballcast data soccertrack` reads; M is a match. The ball is in the tracker's file alone.
PATTERNS = (
    "bas/{M}/{M}_12_class_events.json",
    "gsr/{M}/{M}_*.json",
    "raw/{M}/{M}_tracker_box_data.xml",
    "videos/{M}/{M}_panorama_*_half.mp4",
)
LICENCE = (
    "SoccerTrack v2 (Scott et al., arXiv 2508.01802): the data are under CC BY 4.0 (LICENSE-DATA of its "
    "repository), so name them in what you publish"
)


def download_soccertrack(
    matches: Sequence[str],
    to: Path,
    *,
    repo_id: str = SOCCERTRACK,
    revision: str = "main",
    retries: int = 5,
    log: Callable[[str], object] = lambda line: None,
) -> None:
    """Fetch matches of SoccerTrack v2; files that are there are kept.

    Args:
        matches: their numbers, such as "117092"; empty: all.
        to: the folder for `videos/117092/…`, `bas/…`, `gsr/…` and `raw/…`.
        repo_id: the data set on the hub.
        revision: of it.
        retries: how many times in a row a lost connection is tried again.
        log: called with lines about the licence, the size, and each match.
    """
    log(LICENCE)
    files = choose_files(list_files(repo_id, revision), matches, repo_id)
    make_parents(to / MARK)
    with file_lock(to / ".lock", f"{to}: another download is at work on it; let it finish"):
        done = _read_mark(to)
        missing = [file for file in files if not _is_there(to, file, done)]
        needed = sum(f.size - max(size_of(part_of(_temporary(to, f))), 0) for f in missing)
        log(f"{len(missing)} of {len(files)} files are to be fetched, {decimal(needed)}")
        check_space(to, needed, "fetch " + (" and ".join(matches) or "all matches"))
        for match in dict.fromkeys(_match_of(file) for file in files):
            for file in (f for f in missing if _match_of(f) == match):
                _fetch_one(to, file, retries)
                done[file.path] = file.checksum
                write_json(to / MARK, {"repository": repo_id, "revision": file.revision, "files": done}, indent=1)
            log(f"{match}: {sum(_match_of(f) == match for f in files)} files")


def choose_files(files: Sequence[HubFile], matches: Sequence[str], repo_id: str) -> list[HubFile]:
    """Select the files of the matches that are needed (`PATTERNS`), ordered by match.

    A match that is not there, or that has no labels or no video, is an InputError.
    """
    files = [file for file in files if ".." not in file.path.split("/")]
    known = sorted({parts[1] for f in files if len(parts := f.path.split("/")) == 3 and parts[0] == "bas"})
    for match in matches:
        if match not in known:
            raise InputError(f"{repo_id}: has no match {match!r}; there are {', '.join(known) or 'none'}")
    chosen = []
    for match in matches or known:
        for pattern in PATTERNS:
            found = [f for f in files if fnmatchcase(f.path, pattern.format(M=match))]
            if not found and not pattern.startswith("raw/"):  # the camera can do without the ball
                raise InputError(
                    f"{repo_id}: match {match} has no {pattern.format(M=match)}; is its layout another one?"
                )
            chosen += sorted(found, key=lambda file: file.path)
    if not chosen:
        raise InputError(f"{repo_id}: has no matches in bas/; is it SoccerTrack v2?")
    return chosen


def _fetch_one(to: Path, file: HubFile, retries: int) -> None:
    """Fetch a file, or keep one of its name that has the same bytes."""
    target, temporary = to / file.path, _temporary(to, file)
    make_parents(target)
    with download_progress() as progress:
        if target.exists():
            task = progress.add_task(f"check {file.path}", total=file.size)
            if not is_same(file, target, lambda count: progress.advance(task, count)):
                raise InputError(f"{target}: exists, but is not the hub's; move it away or choose another --to")
            return
        task = progress.add_task(f"fetch {file.path}", total=file.size)
        fetch(file, temporary, retries=retries, tick=lambda count: progress.advance(task, count))
    os.replace(temporary, target)


def _temporary(to: Path, file: HubFile) -> Path:
    """Return the path of the file until it is complete; its name has the checksum, as `fetch` asks."""
    target = to / file.path
    return target.with_name(f".{target.name}.{file.checksum[:12]}")


def _is_there(to: Path, file: HubFile, done: dict[str, str]) -> bool:
    return done.get(file.path) == file.checksum and size_of(to / file.path) == file.size


def _match_of(file: HubFile) -> str:
    return file.path.split("/")[1]


def _read_mark(to: Path) -> dict[str, str]:
    """Read which files were fetched and checked: path → checksum."""
    path = to / MARK
    mark = read_json(path, "list of files") if path.is_file() else {"files": {}}
    files = mark.get("files") if isinstance(mark, dict) else None
    if not isinstance(files, dict):
        raise InputError(f"{path}: is not what a download writes; remove it and run again")
    return files

"""Read a match's event files and predict along it, in a separate process with bounds, in a sandbox.

`python -m ballcast_server.confined.feeds BYTES FOLDER` finds the match's events among the files of FOLDER, and writes
the data of its page to FOLDER/page.json; or prints which other file of the match is needed.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from ballcast.core.embedded import EVENTS, embedded_model
from ballcast.core.errors import InputError
from ballcast.core.feed_forecast import shot_chances
from ballcast.core.files import remove_stale, write_json
from ballcast_server.confined.process import run_confined, start
from ballcast_server.confined.sandbox import confine

PAGE = "page.json"
SECONDS = 120.0  # to read a match and predict along it


def read_match(folder: Path, memory: int) -> str:
    """Run the process of a match.

    Args:
        folder: with the match's files; gets the data of its page.
        memory: bytes that the process may use.

    Returns:
        Which other file of the match is needed, in one sentence that may hold the folder's path; "": it was read.

    Raises:
        InputError: the match cannot be read, in one sentence that may hold the folder's path.
    """
    with start(__name__, str(memory), str(folder.absolute())) as running:
        try:
            missing, errors = running.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            raise InputError(f"the match takes more than {SECONDS:.0f} s to read; is it one match?") from None
        except BaseException:
            running.kill()
            raise
    report = errors.decode(errors="replace").strip().splitlines()
    if running.returncode:
        known = running.returncode == 2 and report
        raise InputError(report[-1] if known else "the match cannot be read within the memory limit")
    return missing.decode(errors="replace").strip()


def sent_files(folder: Path) -> list[Path]:
    """The files of a match as they were sent, in order of their names."""
    return [path for path in sorted(folder.iterdir()) if path.name != PAGE and not path.name.startswith(".")]


def _find_events(folder: Path) -> tuple[Path | None, str]:
    """Find the file of events among the files of a match.

    Returns:
        The file, and ""; or None, and which other file is needed.

    Raises:
        InputError: no other file would help.
    """
    from ballcast.data.events.feed_files import find_lineup, recognise
    from ballcast.data.events.kloppy_feed import PROVIDERS

    files = sent_files(folder)
    reasons = []
    for path in files:
        try:
            provider = recognise(path)
            if provider in PROVIDERS and PROVIDERS[provider].lineup:
                find_lineup(path, provider)
        except InputError as error:
            reasons.append(str(error))
        else:
            return path, ""
    if (len(files) == 1 and "second file" in reasons[0]) or "give its file of events" in reasons[0]:
        return None, reasons[0]
    raise InputError(reasons[0])


def _read(folder: Path) -> None:
    """Write the data of a match's page, or print which other file is needed; runs in the process."""
    from ballcast.data.events.kloppy_feed import open_feed
    from ballcast.inference.event_model import open_event_model
    from ballcast.inference.feed_predictor import predict_events, summarise
    from ballcast.report.feed_page import page_data

    remove_stale(folder)
    confine(read=[], write=[folder])
    events, needed = _find_events(folder)
    if events is None:
        sys.stdout.buffer.write(needed.encode())
        return
    feed, provider, missing = open_feed(events)
    model = open_event_model(Path(embedded_model(EVENTS)))
    made = list(predict_events(model, feed, missing=missing))
    match = summarise(feed, provider, missing)
    about: dict[str, Any] = {"match": match.match, "provider": match.provider, "teams": list(match.teams)}
    about |= {"begins": dict(match.begins), "missing_details": list(match.missing_details)}
    write_json(folder / PAGE, page_data(made, match, shot_chances(made, match)) | {"about": about})


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns its exit code."""
    memory, folder = arguments
    out_of_memory = "the match needs more memory than is allowed here"
    return run_confined(lambda: _read(Path(folder)), memory=int(memory), out_of_memory=out_of_memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

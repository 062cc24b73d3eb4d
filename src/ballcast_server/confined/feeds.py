"""Read a match's event files and predict along it, in a separate process with bounds, in a sandbox.

`python -m ballcast_server.confined.feeds BYTES FOLDER NAME` reads the match in FOLDER/NAME, and writes the data of its
page to FOLDER/page.json.
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


def read_match(folder: Path, name: str, memory: int) -> None:
    """Run the process of a match.

    Args:
        folder: with the match's files; gets the data of its page.
        name: of the file of events.
        memory: bytes that the process may use.

    Raises:
        InputError: the match cannot be read, in one sentence that may hold the folder's path.
    """
    with start(__name__, str(memory), str(folder.absolute()), name) as running:
        try:
            _, errors = running.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            raise InputError(f"{name}: takes more than {SECONDS:.0f} s to read; is it one match?") from None
        except BaseException:
            running.kill()
            raise
    report = errors.decode(errors="replace").strip().splitlines()
    if running.returncode:
        known = running.returncode == 2 and report
        raise InputError(report[-1] if known else f"{name}: cannot be read within the memory limit")


def _read(folder: Path, name: str) -> None:
    """Write the data of a match's page; runs in the process."""
    from ballcast.data.events.kloppy_feed import open_feed
    from ballcast.inference.event_model import open_event_model
    from ballcast.inference.feed_predictor import predict_events, summarise
    from ballcast.report.feed_page import page_data

    remove_stale(folder)
    confine(read=[], write=[folder])
    feed, provider, missing = open_feed(folder / name)
    model = open_event_model(Path(embedded_model(EVENTS)))
    made, match = list(predict_events(model, feed, missing=missing)), summarise(feed, provider, missing)
    about: dict[str, Any] = {"match": match.match, "provider": match.provider, "teams": list(match.teams)}
    about |= {"begins": dict(match.begins), "missing_details": list(match.missing_details)}
    write_json(folder / PAGE, page_data(made, match, shot_chances(made, match)) | {"about": about})


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns its exit code."""
    memory, folder, name = arguments
    out_of_memory = f"{name}: needs more memory than is allowed here"
    return run_confined(lambda: _read(Path(folder), name), memory=int(memory), out_of_memory=out_of_memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""HTTP routes of event feeds: send a match's file or files, get its page with the timeline and the replay.

Files of feeds come from anyone, so they are read in a separate process with bounds on memory and time, in a sandbox, as
videos are. `python -m ballcast_server.web.feed_routes BYTES FOLDER NAME` reads the match in FOLDER/NAME, forecasts
along it, and writes FOLDER/page.json. Errors are one sentence on stderr, exit code 2.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from ballcast.core.embedded import EVENTS, embedded_model
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.feed_forecast import MatchSummary, shot_chances
from ballcast.core.files import read_json, remove_stale, write_json
from ballcast_server.sandbox import confine
from ballcast_server.web.decoder import environment, limit_memory, lower_priority
from ballcast_server.web.guard import user_of
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.jobs import Job
from ballcast_server.web.schema import FeedRecord, errors
from ballcast_server.web.service import Service
from ballcast_server.web.settings import RequestError
from ballcast_server.web.uploads import UPLOAD_SCHEMA, open_upload, save_body

router = APIRouter(tags=["feeds"])
pages = APIRouter(include_in_schema=False)
FeedId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
PAGE = "page.json"
KEPT = 50  # matches; the oldest are removed
SECONDS = 120.0  # to read a match and forecast along it


@router.post("/api/feeds", status_code=201, openapi_extra=UPLOAD_SCHEMA, responses=errors(400, 408, 413, 422, 503, 507))
async def send_feed(
    request: Request,
    x_file_name: Annotated[str, Header(max_length=2000)] = "events",
    with_: Annotated[str | None, Query(alias="with", pattern="^[0-9a-f]{16}$")] = None,
) -> FeedRecord:
    """Send a file of a match's events as the request's body (X-File-Name is its name), or in a form.

    Opta, Stats Perform, Sportec and StatsBomb deliver a second file: send it too, with `with` set to the id that the
    first was answered with. `ready` is true once the match could be read.
    """
    service, user = service_of(request), user_of(request.scope)
    feed_id = with_ or Job.new_id()
    folder = service.feeds / feed_id
    if with_ is not None and not folder.is_dir():
        raise RequestError(404, "there is no such match; send its first file again")
    with service.upload_limit.enter(user):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            given, parts = await open_upload(request, x_file_name, service.limits)
            name = re.sub(r"[^A-Za-z0-9._-]", "_", given).lstrip(".") or "events"
            name = f"events_{name}" if name == PAGE else name  # ours, which becomes the page
            await save_body(request, folder / name, service.limits.labels_bytes, service.limits, parts=parts)
            ready, message = await run_in_threadpool(_read, service, folder)
        except BaseException:
            await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
            raise
    await run_in_threadpool(_remove_oldest, service.feeds)
    return FeedRecord(id=feed_id, ready=ready, message=message)


def _read(service: Service, folder: FilePath) -> tuple[bool, str]:
    """Read the match of a folder: whether it could be read, and if not, why; RequestError 422 if it never will be."""
    from ballcast.data.events.feed_files import find_lineup, recognise
    from ballcast.data.events.kloppy_feed import PROVIDERS

    named = [path for path in sorted(folder.iterdir()) if path.name != PAGE]
    reasons = []
    for path in named:
        try:
            provider = recognise(path)
            if provider in PROVIDERS and PROVIDERS[provider].lineup:
                find_lineup(path, provider)
            break
        except InputError as error:
            reasons.append(_shown(error, folder))
    else:
        if (len(named) == 1 and "second file" in reasons[0]) or "give its file of events" in reasons[0]:
            return False, reasons[0]
        raise RequestError(422, reasons[0])
    with service.reading_feeds:
        _run(service, folder, path.name)
    return True, ""


def _run(service: Service, folder: FilePath, name: str) -> None:
    """Forecast along a match in a bounded process; RequestError 422 if that fails."""
    command = [sys.executable, "-m", __name__, str(service.limits.memory_bytes), str(folder.absolute()), name]
    try:
        how: dict[str, Any] = {"env": environment(), "cwd": os.path.abspath(os.sep)}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False, **how
        )
    except subprocess.TimeoutExpired:
        raise RequestError(422, f"{name}: takes more than {SECONDS:.0f} s to read; is it one match?") from None
    report = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode:
        message = report[-1] if done.returncode == 2 and report else f"{name}: cannot be read within the memory limit"
        raise RequestError(422, _shown(message, folder))


def _shown(message: object, folder: FilePath) -> str:
    """A message without the folder's path."""
    return str(message).replace(f"{folder.absolute()}{os.sep}", "").replace(f"{folder}{os.sep}", "")


def _remove_oldest(feeds: FilePath) -> None:
    found = sorted((path for path in feeds.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for folder in found[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


@pages.get("/feeds/{feed_id}")
def feed_page(request: Request, feed_id: FeedId) -> HTMLResponse:
    """The page of a match."""
    from ballcast.report import feed_page as page

    path = service_of(request).feeds / feed_id / PAGE
    if not path.is_file():
        raise RequestError(404, "there is no such match; send its file again")
    tree = read_json(path, "page of a match")
    about = tree.pop("about")
    match = MatchSummary(
        about["match"],
        about["provider"],
        tuple(about["teams"]),
        about["begins"],
        missing_details=about.get("missing_details", ()),
    )
    return HTMLResponse(page.feed_page(tree, match, script="/feed_page.js"))


@pages.get("/feed_page.{kind}")
def feed_page_file(kind: str) -> Response:
    """The script or the style sheet of a match's page."""
    media = {"js": "text/javascript", "css": "text/css"}
    if kind not in media:
        raise RequestError(404, "there is no such file")
    text = (files("ballcast.report") / f"feed_page.{kind}").read_text(encoding="utf-8")
    return Response(text, media_type=media[kind], headers={"Cache-Control": "no-cache"})


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns its exit code."""
    limit_memory(int(arguments[0]))
    lower_priority()
    folder = FilePath(arguments[1])
    try:
        from ballcast.data.events.kloppy_feed import open_feed
        from ballcast.inference.event_model import open_event_model
        from ballcast.inference.feed_predictor import predict_events, summarise
        from ballcast.report.feed_page import page_data

        remove_stale(folder)
        confine(read=[], write=[folder])
        feed, provider, missing = open_feed(folder / arguments[2])
        model = open_event_model(FilePath(embedded_model(EVENTS)))
        made, match = list(predict_events(model, feed, missing=missing)), summarise(feed, provider, missing)
        about: dict[str, Any] = {"match": match.match, "provider": match.provider, "teams": list(match.teams)}
        about |= {"begins": dict(match.begins), "missing_details": list(match.missing_details)}
        write_json(folder / PAGE, page_data(made, match, shot_chances(made, match)) | {"about": about})
    except BallcastError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except MemoryError:
        sys.stderr.write(f"{arguments[2]}: needs more memory than is allowed here\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

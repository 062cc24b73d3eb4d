"""HTTP routes of event feeds: send a match's file or files, get its page with the timeline and the replay."""

import shutil
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from ballcast.core.feed_forecast import MatchSummary
from ballcast_server.settings import RequestError
from ballcast_server.web.guard import user_of
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.schema import FeedRecord, errors
from ballcast_server.web.uploads import UPLOAD_SCHEMA, open_upload, save_body

router = APIRouter(tags=["feeds"])
pages = APIRouter(include_in_schema=False)
FeedId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


@router.post(
    "/api/feeds",
    status_code=201,
    openapi_extra=UPLOAD_SCHEMA,
    responses=errors(400, 404, 408, 409, 413, 422, 429, 503, 507),
)
async def send_feed(
    request: Request,
    x_file_name: Annotated[str, Header(max_length=2000)] = "events",
    with_: Annotated[str | None, Query(alias="with", pattern="^[0-9a-f]{16}$")] = None,
) -> FeedRecord:
    """Send a file of a match's events as the request's body (X-File-Name is its name), or in a form.

    Opta, Stats Perform, Sportec and StatsBomb deliver a second file: send it too, with `with` set to the id that the
    first was answered with. `ready` is true once the match could be read.
    """
    service = service_of(request)
    user = user_of(request.scope)
    if with_ is not None:
        service.feeds.check_addition(with_, user)
    with service.uploads.enter(user):
        feed_id = with_ or service.feeds.new(user)
        folder = service.feeds.folder(feed_id)
        path = None
        try:
            given, parts = await open_upload(request, x_file_name, service.limits)
            path = service.feeds.new_file(feed_id, given)
            await save_body(request, path, service.limits.labels_bytes, service.limits, parts=parts)
            ready, message = await run_in_threadpool(service.feeds.read, folder)
        except BaseException:
            if with_ is None:
                await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
            elif path is not None:
                path.unlink(missing_ok=True)
            raise
    await run_in_threadpool(service.feeds.remove_oldest)
    return FeedRecord(id=feed_id, ready=ready, message=message)


@pages.get("/feeds/{feed_id}")
def feed_page(request: Request, feed_id: FeedId) -> HTMLResponse:
    """The page of a match."""
    from ballcast.report import feed_page as page

    tree = service_of(request).feeds.page(feed_id)
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

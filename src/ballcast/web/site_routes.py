"""HTTP routes of the page and its files, health, login and streams."""

from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.actions import ACTIONS, HORIZON_MS, SHORT_NAMES
from ballcast.web.auth import COOKIE
from ballcast.web.guard import user_of
from ballcast.web.job_routes import service_of
from ballcast.web.schema import About, Actual, Health, LoginRequest, StreamRecord, errors
from ballcast.web.server_sent_events import EventStream
from ballcast.web.settings import RequestError

router = APIRouter()
pages = APIRouter(include_in_schema=False)
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
# Read once: the name in a request is only a key of this table, never a path.
STATIC = {file.name: file.read_bytes() for file in (files("ballcast.web") / "static").iterdir() if "." in file.name}


@router.get("/api/health", tags=["server"])
def health() -> Health:
    """Check that the server is up; needs no token."""
    return Health(version=__version__)


@router.get("/api/about", tags=["server"])
def about(request: Request) -> About:
    """Get the settings that the page needs."""
    service = service_of(request)
    return About(
        version=__version__,
        actions=list(ACTIONS),
        names=list(SHORT_NAMES),
        horizon_ms=HORIZON_MS,
        every_ms=service.settings.every_ms,
        upload_bytes=service.limits.upload_bytes,
        video_s=service.limits.video_s,
        login=not service.auth.open,
    )


@router.post("/api/login", status_code=204, tags=["server"], responses=errors(401, 429))
async def login(request: Request, credentials: LoginRequest) -> Response:
    """Log in with the token; begins a session and sets its cookie."""
    auth = service_of(request).auth
    if not auth.check(credentials.token.strip(), user_of(request.scope)):
        raise RequestError(401, "wrong token")
    response = Response(status_code=204)
    if not auth.open:
        secure, age = request.url.scheme == "https", round(service_of(request).limits.session_s)
        response.set_cookie(COOKIE, auth.new_session(), httponly=True, samesite="strict", secure=secure, max_age=age)
    return response


@router.post("/api/logout", status_code=204, tags=["server"])
async def logout(request: Request) -> Response:
    """Log out; ends the session and removes its cookie."""
    service_of(request).auth.end_session(request.headers.get("cookie", ""))
    response = Response(status_code=204)
    response.delete_cookie(COOKIE)
    return response


@router.get("/api/streams", tags=["streams"])
async def streams(request: Request) -> list[StreamRecord]:
    """List the streams (--stream)."""
    return [StreamRecord(name=s.name, state=s.state, viewers=s.viewers) for s in service_of(request).streams.values()]


@router.get("/api/streams/{name}/events", tags=["streams"], response_class=EventStream, responses=errors(404, 429, 503))
async def stream_events(request: Request, name: str) -> EventStream:
    """Follow a stream as server-sent events: session, anticipation, status, preview, lost; see docs/live.md."""
    service = service_of(request)
    if name not in service.streams:
        raise RequestError(404, "there is no such stream")
    return EventStream(service.streams[name].follow(), service.add_viewer(user_of(request.scope)))


@router.get("/api/streams/{name}/actual", tags=["streams"], responses=errors(404, 422))
def stream_actual(request: Request, name: str) -> Actual:
    """Get the actual events of a stream that is a file with labels beside it, on the file's clock."""
    service = service_of(request)
    if name not in service.streams:
        raise RequestError(404, "there is no such stream")
    return Actual.of(service.actual_of_stream(name))


@pages.get("/palette.css")
def palette_css() -> Response:
    """Colours of the page as CSS variables."""
    return Response(palette.css(), media_type="text/css", headers={"Cache-Control": "max-age=300"})


@pages.get("/")
def index() -> HTMLResponse:
    """The page."""
    return HTMLResponse(STATIC["index.html"])


@pages.get("/login")
def login_page() -> HTMLResponse:
    """The login form."""
    return HTMLResponse(STATIC["login.html"])


@pages.get("/docs")
def docs_page() -> HTMLResponse:
    """The description of the API."""
    return HTMLResponse(STATIC["docs.html"])


@pages.get("/static/{name}")
def static(name: str) -> Response:
    """A script, style sheet or icon of the page."""
    if name not in STATIC or name.endswith(".html"):
        raise RequestError(404, "there is no such file")
    kind = KINDS[name.rsplit(".", 1)[-1]]
    return Response(STATIC[name], media_type=kind, headers={"Cache-Control": "no-cache"})

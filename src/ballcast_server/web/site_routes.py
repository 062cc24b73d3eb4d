"""HTTP routes of the page and its files, health and login."""

from importlib.resources import files
from pathlib import PurePath
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.actions import ACTIONS, HORIZON_MS, SHORT_NAMES
from ballcast_server.access.auth import COOKIE
from ballcast_server.settings import RequestError
from ballcast_server.web.guard import user_of
from ballcast_server.web.job_routes import service_of
from ballcast_server.web.schema import About, Health, LoginRequest, ModelRecord, errors

router = APIRouter()
pages = APIRouter(include_in_schema=False)
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "html": "text/html"}
# Read once: the name in a request is only a key of this table, never a path.
STATIC = {
    file.name: file.read_bytes() for file in (files("ballcast_server.web") / "static").iterdir() if "." in file.name
}


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
        models=[_model_record(service.predictors.about)],
        upload_bytes=service.limits.upload_bytes,
        video_s=service.limits.video_s,
        login=not service.auth.open,
    )


def _model_record(about: dict[str, Any]) -> ModelRecord:
    name = PurePath(str(about.get("model", ""))).name  # not the folder: viewers need not know where it is
    return ModelRecord(model=name, origin=about.get("origin", ""), precision=about.get("precision"))


@router.post("/api/login", status_code=204, tags=["server"], responses=errors(401, 429))
async def login(request: Request, credentials: LoginRequest) -> Response:
    """Log in with the token; begins a session and sets its cookie."""
    auth = service_of(request).auth
    token = credentials.token.strip()
    if not auth.check(token, user_of(request.scope)):
        raise RequestError(401, "wrong token")
    response = Response(status_code=204)
    if not auth.open:
        secure = request.url.scheme == "https"
        age = round(service_of(request).limits.session_s)
        session = auth.new_session(token)
        response.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=secure, max_age=age)
    return response


@router.post("/api/logout", status_code=204, tags=["server"])
async def logout(request: Request) -> Response:
    """Log out; ends the session and removes its cookie."""
    service_of(request).auth.end_session(request.headers.get("cookie", ""))
    response = Response(status_code=204)
    response.delete_cookie(COOKIE)
    return response


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


@pages.get("/streams")
def streams_page() -> HTMLResponse:
    """The page on which streams are added and removed."""
    return HTMLResponse(STATIC["streams.html"])


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

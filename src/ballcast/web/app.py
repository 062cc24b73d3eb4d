"""The application: routes behind the guard, errors as one sentence of JSON."""

import errno
import sqlite3

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from ballcast import __version__
from ballcast.core.errors import BallcastError, NoSpace
from ballcast.web import house_routes, job_routes
from ballcast.web.guard import Guard, refusal_response
from ballcast.web.house import House
from ballcast.web.refused import Refused
from ballcast.web.uploads import FULL

DESCRIPTION = """Anticipate football: which ball actions come in the next 5 seconds of a video or a stream, and when.

Hand in a video, follow its events, take the timeline. Times are milliseconds of the video; confidences are honest
chances. Errors are {"error": one sentence}."""


def build_app(house: House) -> ASGIApp:
    """The ASGI application of a house; `/openapi.json` describes it, `/docs` shows that."""
    app = FastAPI(title="ballcast", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.house = house
    app.include_router(job_routes.router)
    app.include_router(house_routes.router)
    app.include_router(house_routes.pages)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(BallcastError, _refused)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    for full in (OSError, sqlite3.Error):
        app.add_exception_handler(full, _perhaps_full)
    app.add_exception_handler(Exception, _failed)  # which is logged too
    return Guard(app, door=house.door, hosts=house.settings.hosts, limits=house.limits)


async def _failed(*_: object) -> Response:
    return refusal_response(Refused(500, "an error in the server; whoever runs it finds more in its log"))


async def _perhaps_full(_: Request, error: Exception) -> Response:
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    if full or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return refusal_response(Refused(507, FULL))
    raise error


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return refusal_response(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "the request"
        return refusal_response(Refused(422, f"{place}: {first['msg']}"))
    if isinstance(error, HTTPException):
        return refusal_response(Refused(error.status_code, str(error.detail)))
    if isinstance(error, NoSpace):
        return refusal_response(Refused(507, FULL))
    return refusal_response(Refused(500, request.app.state.house.shown(str(error))))

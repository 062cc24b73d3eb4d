"""The application: routes behind the guard, errors as one sentence of JSON."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from ballcast import __version__
from ballcast.core.errors import BallcastError
from ballcast.web import house_routes, job_routes
from ballcast.web.guard import Guard, refusal_response
from ballcast.web.house import House
from ballcast.web.refused import Refused

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
    return Guard(app, door=house.door, hosts=house.settings.hosts, limits=house.limits)


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return refusal_response(error)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"][1:])) or "the request"
        return refusal_response(Refused(422, f"{place}: {first['msg']}"))
    if isinstance(error, HTTPException):
        return refusal_response(Refused(error.status_code, str(error.detail)))
    return refusal_response(Refused(500, str(error)))

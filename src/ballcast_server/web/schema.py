"""Records of the HTTP API, as described in /openapi.json, and of the files of the server."""

import re
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.errors import InputError
from ballcast.core.events import Event
from ballcast.core.files import read_json

STREAM_NAME = re.compile(r"[\w-]{1,40}")
Row = TypeVar("Row", bound=BaseModel)


def read_rows(path: Path, what: str, model: type[Row]) -> list[Row]:
    """Read a JSON file with a list of records.

    Args:
        path: of the file.
        what: the name of its records, for errors.
        model: of a record; unknown keys and wrong types are errors.

    Returns:
        The records.

    Raises:
        InputError: the file is not one of such records.
    """
    rows = read_json(path, what)
    if not isinstance(rows, list):
        raise InputError(f"{path}: is not a file of {what}; delete it, and add them again")
    try:
        return [model.model_validate(row, strict=True) for row in rows]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        fault = f"{place}: {first['msg']}" if place else first["msg"]
        raise InputError(f"{path}: {fault}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


class Error(BaseModel):
    """Why a request failed, in one sentence."""

    error: str


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may fail with these status codes."""
    return {status: {"model": Error} for status in statuses}


class Health(BaseModel):
    """Reply of a running server."""

    status: Literal["ok"] = "ok"
    version: str


class About(BaseModel):
    """Settings of the server that the page needs."""

    version: str
    actions: list[str] = Field(description="The ten labels, in the order of every list of scores.")
    names: list[str] = Field(description="Their short names, for display.")
    horizon_ms: int = Field(description="How far ahead actions are predicted.")
    every_ms: int = Field(description="Interval between forecasts.")
    models: list["ModelRecord"] = Field(description="The models that compute forecasts; streams use the first.")
    upload_bytes: int = Field(description="Largest size of a video (--max-upload).")
    video_s: float = Field(description="Longest duration of a video (--max-minutes).")
    login: bool = Field(description="Whether a token is needed.")


class ModelRecord(BaseModel):
    """A model, as it is described in its results too."""

    model: str = Field(description="Its name.")
    origin: str = Field(description="What it was trained on, in words.")
    precision: dict[str, Any] | None = Field(description="Its expected precision; None: not measured.")


class VideoRecord(BaseModel):
    """A video of the server's folder."""

    id: str
    name: str
    bytes: int


class FeedRecord(BaseModel):
    """A match of which event files were sent; its page is /feeds/{id} once it is `ready`."""

    id: str
    ready: bool
    message: str = Field(description="What is missing, if it is not ready.")


class JobRecord(BaseModel):
    """The job of one video."""

    id: str
    name: str = Field(description="Name of the video.")
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    message: str = Field(description="Why it failed.")
    height: int
    width: int
    duration_ms: int | None = Field(description="None: the file does not say.")
    codec: str = Field(description="Of the video, as FFmpeg names it; browsers cannot play all.")
    done_ms: int = Field(description="Length of the video processed so far.")
    created: float = Field(description="Seconds since 1970.")
    finished: float | None
    mine: bool = Field(description="Whether it was submitted from the client's address.")


class Submission(BaseModel):
    """A video of the server's folder to process."""

    video: str = Field(pattern="^[0-9a-f]{16}$", description="Its id, from /api/videos.")


class EventRecord(BaseModel):
    """An action that happened; its time in ms of the video."""

    label: str
    position_ms: int
    team: str

    @classmethod
    def from_event(cls, event: Event) -> "EventRecord":
        """The record of an event."""
        return cls(label=event.label, position_ms=event.position_ms, team=event.team)


class Actual(BaseModel):
    """Actual events in order of time; `known` is false if there are no labels."""

    known: bool
    events: list[EventRecord]

    @classmethod
    def from_events(cls, events: tuple[Event, ...] | None) -> "Actual":
        """The record of events; None: there are no labels."""
        return cls(known=events is not None, events=[EventRecord.from_event(event) for event in events or ()])


class StreamOptions(BaseModel):
    """What is done with a stream besides showing it to viewers."""

    always: bool = Field(default=True, description="Follow it without viewers too.")
    alerts: dict[str, float] = Field(default={}, description="Least probability of an alert, by action.")
    clips: bool = Field(default=False, description="Keep the seconds around each alert as mp4.")


class StreamSettings(StreamOptions):
    """How a stream is followed."""

    address: str = Field(max_length=2000, description="rtsp://, http(s)://, tcp://, udp://, …; it is not disclosed.")


class StreamConfig(StreamOptions):
    """A stream of the server, as `streams.json` keeps it; an InputError if it cannot be one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    address: str
    fixed: bool = False  # given on the command line, and not changed while the server runs

    def model_post_init(self, _: Any) -> None:
        """Check what types do not."""
        if not STREAM_NAME.fullmatch(self.name):
            raise InputError(f"{self.name!r}: a stream's name has letters, digits, - and _, at most 40")
        for action, threshold in self.alerts.items():
            if action not in ACTION_INDEX:
                raise InputError(f"{action!r}: is not an action; there are {', '.join(ACTION_INDEX)}")
            if not 0 < threshold <= 1:
                raise InputError(f"{action}: an alert's threshold is a probability over 0 and up to 1")
        if self.clips and not self.alerts:
            raise InputError("clips are kept of alerts; give alerts too")


class StreamRecord(StreamOptions):
    """A stream that can be watched; its address is not disclosed."""

    name: str
    state: str = Field(description="'idle' without viewers; else the state of the last status event.")
    message: str = Field(
        default="", description="The state in words; 'no room …' while other streams take the machine."
    )
    viewers: int
    fixed: bool = Field(default=False, description="Given on the command line; it cannot be changed or removed.")
    forecasts: int = Field(default=0, description="Since the server began, as all counts here.")
    latency_ms: float = Field(default=0.0, description="From the last frame to the last forecast.")
    behind_ms: int = Field(default=0, description="Length of the stream that waits to be computed.")
    dropped: int = Field(default=0, description="Frames dropped because the machine was too slow.")
    gaps: int = 0
    reconnects: int = 0
    last_error: str = ""


class ClipRecord(BaseModel):
    """A clip of a stream, kept at an alert."""

    name: str
    bytes: int
    created: float = Field(description="Seconds since 1970.")


class LoginRequest(BaseModel):
    """Body of a login."""

    token: str = Field(max_length=1000)

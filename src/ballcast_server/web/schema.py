"""Records of the HTTP API, as described in /openapi.json."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ballcast.core.events import Event
from ballcast_server.streams.config import StreamOptions


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
    precision: dict[str, Any] | None = Field(
        description="Tolerance and default level of its expected precision; None: not measured."
    )


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


class StreamSettings(StreamOptions):
    """How a stream is followed."""

    address: str = Field(max_length=2000, description="rtsp://, http(s)://, tcp://, udp://, …; it is not disclosed.")


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

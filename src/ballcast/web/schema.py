"""Records of the HTTP API, as described in /openapi.json."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ballcast.core.events import Event


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
    upload_bytes: int = Field(description="Largest size of a video.")
    video_s: float = Field(description="Longest duration of a video.")
    login: bool = Field(description="Whether a token is needed.")


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
    def of(cls, event: Event) -> "EventRecord":
        """The record of an event."""
        return cls(label=event.label, position_ms=event.position_ms, team=event.team)


class Actual(BaseModel):
    """Actual events in order of time; `known` is false if there are no labels."""

    known: bool
    events: list[EventRecord]

    @classmethod
    def of(cls, events: tuple[Event, ...] | None) -> "Actual":
        """The record of events; None: there are no labels."""
        return cls(known=events is not None, events=[EventRecord.of(event) for event in events or ()])


class StreamRecord(BaseModel):
    """A stream that can be watched; its address is not disclosed."""

    name: str
    state: str = Field(description="'idle' without viewers; else the state of the last status event.")
    viewers: int


class LoginRequest(BaseModel):
    """Body of a login."""

    token: str = Field(max_length=1000)

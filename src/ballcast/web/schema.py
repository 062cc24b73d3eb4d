"""The records of the interface, as /openapi.json describes them."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ballcast.core.events import Event


class Error(BaseModel):
    """Why a request was not done, in one sentence."""

    error: str


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ways a request may be refused, as a route's `responses`."""
    return {status: {"model": Error} for status in statuses}


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


class About(BaseModel):
    """What a page needs to know of this server."""

    version: str
    actions: list[str] = Field(description="The ten labels, in the order of every list of scores.")
    names: list[str] = Field(description="Their short names, for people.")
    horizon_ms: int = Field(description="How far ahead is looked.")
    every_ms: int = Field(description="From one anticipation to the next.")
    upload_bytes: int = Field(description="The largest video that is taken.")
    video_s: float = Field(description="The longest video that is taken.")
    login: bool = Field(description="Whether a token is asked for.")


class VideoRecord(BaseModel):
    """A video of the server's folder."""

    id: str
    name: str
    bytes: int


class JobRecord(BaseModel):
    """A video's job."""

    id: str
    name: str = Field(description="The video's.")
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    message: str = Field(description="Why it failed.")
    height: int
    width: int
    duration_ms: int | None = Field(description="None: the file does not say.")
    done_ms: int = Field(description="How much of the video is done.")
    created: float = Field(description="Seconds since 1970.")
    finished: float | None
    mine: bool = Field(description="Whether it was handed in from the address that asks.")


class Submission(BaseModel):
    """A video of the server's folder to anticipate along."""

    video: str = Field(pattern="^[0-9a-f]{16}$", description="Its id, from /api/videos.")


class EventRecord(BaseModel):
    """An action that happened; its time in ms of the video."""

    label: str
    position_ms: int
    team: str

    @classmethod
    def of(cls, event: Event) -> "EventRecord":
        return cls(label=event.label, position_ms=event.position_ms, team=event.team)


class Actual(BaseModel):
    """What really happened, in order of time; `known` is false where no labels are at hand."""

    known: bool
    events: list[EventRecord]

    @classmethod
    def of(cls, events: tuple[Event, ...] | None) -> "Actual":
        return cls(known=events is not None, events=[EventRecord.of(event) for event in events or ()])


class StreamRecord(BaseModel):
    """A stream that can be watched; its address stays with the server."""

    name: str
    state: str = Field(description="'idle' while nobody watches; else as /api/streams/{name}/events tells.")
    viewers: int


class Key(BaseModel):
    token: str = Field(max_length=1000)

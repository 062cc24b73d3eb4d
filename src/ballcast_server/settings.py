"""Limits and settings of the server, and the error that answers a request."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ballcast.core.errors import InputError
from ballcast_server.networks import NetworkPolicy


@dataclass(frozen=True)
class Limits:
    """Bounds on the cost of one request, user or video. Sizes in bytes, times in seconds."""

    upload_bytes: int = 4 << 30  # of one video
    labels_bytes: int = 16 << 20  # of one labels file
    labels_entries: int = 1_000_000  # values in one labels file
    labels_events: int = 20_000  # of one video
    body_bytes: int = 64 << 10  # of any other request
    free_bytes: int = 1 << 30  # that stay free on the disk
    stall_s: float = 30.0  # a client that neither sends nor reads for this long is disconnected
    slow_bytes_s: int = 16 << 10  # least average rate of an upload after its first `stall_s`
    upload_s: float = 12 * 3600.0  # for the whole of an upload
    discard_s: float = 2.0  # time for which the rest of a rejected upload is read: else the client would miss the error
    discard_bytes: int = 32 << 20  # largest part of it that is read
    body_s: float = 20.0  # for the whole of a small body
    header_bytes: int = 16 << 10  # of a request's line and headers
    header_count: int = 100
    headers_s: float = 10.0  # from a connection's opening to the end of its request's headers
    uploads: int = 8  # at once, of all users
    uploads_a_user: int = 2
    waiting_a_user: int = 20  # jobs that are queued or running
    kept_a_user: int = 200  # jobs in all
    feeds: int = 200  # matches of event feeds that are kept, of all users
    feeds_a_user: int = 50
    feed_files: int = 4  # of one match; providers deliver two
    pixels: int = 4096 * 2304  # of a frame: 4K; they are shrunk to the size of training as in `predict`
    video_s: float = 4 * 3600.0  # length of a video
    memory_bytes: int = 3 << 30  # of a decoder process
    frame_s: float = 60.0  # to decode one frame
    slice_s: float = 10.0  # one user's turn while others wait
    open_jobs: int = 8  # started and not ended, of all users; each holds a decoder process
    viewers: int = 1000  # following streams or jobs at once
    viewers_a_user: int = 250
    connections: int = 4000  # at once; beyond, idle ones are closed for new ones
    connections_a_user: int = 500
    guesses: int = 10  # wrong tokens and cookies from one address within `guesses_s`
    guesses_s: float = 60.0
    session_s: float = 7 * 86400.0  # from login


@dataclass(frozen=True)
class AlertTargets:
    """Where alerts go.

    Args:
        webhook: an http(s) address that gets a POST with the message as JSON; "": none.
        secret: signs the messages of the webhook.
        mqtt: mqtt://[user:password@]host[:port]/topic, or mqtts://; messages go to topic/stream/action; "": none.
        cooldown_s: seconds without another alert of the same action of the same stream.
    """

    webhook: str = ""
    secret: str = ""
    mqtt: str = ""
    cooldown_s: float = 30.0

    def __post_init__(self) -> None:
        if self.webhook and not _is_address(self.webhook, "http", "https"):
            raise InputError("--webhook: give an address that begins with http:// or https://")
        if self.mqtt and not _is_address(self.mqtt, "mqtt", "mqtts"):
            raise InputError("--mqtt: give mqtt://host/topic, or mqtts:// for TLS")


def _is_address(address: str, *schemes: str) -> bool:
    """Whether it is an address with a host, and a port that is a number if it has one."""
    try:
        parts = urlsplit(address)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@dataclass(frozen=True)
class Settings:
    """Options of `ballcast serve`.

    Args:
        data: folder of jobs, uploads and results.
        videos: folder of videos to pick from, or None.
        streams: name → address of the streams that can be watched.
        token: token that every request needs; None: no authentication.
        hosts: accepted host names, besides IP addresses and the names of this machine.
        proxies: addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
        workers: number of videos computed at once.
        every_ms: interval between forecasts.
        networks: which addresses streams that are added, and webhooks, may lead to.
        alerts: where alerts of streams go.
        clips_days, clips_bytes: how long clips of alerts are kept, and the size of all of them together.
        limits: bounds on requests, users and videos.
    """

    data: Path
    videos: Path | None = None
    streams: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    workers: int = 1
    every_ms: int = 1000
    networks: NetworkPolicy = field(default_factory=NetworkPolicy)
    alerts: AlertTargets = field(default_factory=AlertTargets)
    clips_days: float = 7.0
    clips_bytes: int = 10 << 30
    limits: Limits = field(default_factory=Limits)


FULL = "the server's disk is nearly full; delete videos that are no longer needed"


class RequestError(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status code.
        message: one sentence: the fault and what to do.
        retry_s: seconds after which the client may try again.
    """

    def __init__(self, status: int, message: str, *, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_s = retry_s

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {} if self.retry_s is None else {"Retry-After": str(self.retry_s)}

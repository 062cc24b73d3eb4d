"""`ballcast serve`: the server and its web page."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ballcast.cli.runtime import (
    AnyVideo,
    Followers,
    Kind,
    Model,
    ModelBackbone,
    PictureSize,
    absolute,
    check_followers,
    load_model,
    model_arguments,
)
from ballcast.cli.shell import Device, app, new_console, seconds_option
from ballcast.core.errors import InputError
from ballcast_server.cli.extra import require_server

if TYPE_CHECKING:
    import socket

    from ballcast_server.networks import NetworkPolicy
    from ballcast_server.web.service import Service


Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")]
Videos = Annotated[Path | None, typer.Option("--videos", help="A folder of videos to pick from.")]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", help="NAME=ADDRESS, as in `ballcast live`; several. Others are added on the page."),
]
Data = Annotated[Path, typer.Option("--data", help="The folder for uploads, jobs and results.")]
Every = Annotated[float, seconds_option("Seconds between two forecasts.", most=60)]
Workers = Annotated[int, typer.Option("--workers", min=1, max=64, help="Videos computed at once.")]
MaxUpload = Annotated[float, typer.Option("--max-upload", min=0.001, help="GiB of one video, at most.")]
MaxMinutes = Annotated[float, typer.Option("--max-minutes", min=0.1, help="Length of one video, at most.")]
MaxPixels = Annotated[int, typer.Option("--max-pixels", min=1, help="Of one frame, at most; by default those of 4K.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="BALLCAST_TOKEN", help="Require this token; without it, one is generated."),
]
NoToken = Annotated[bool, typer.Option("--no-token", help="Require no token; on localhost only.")]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        help="Address or network of a proxy; its X-Forwarded-For and X-Forwarded-Proto are believed; several.",
    ),
]
Webhook = Annotated[
    str,
    typer.Option("--webhook", help="Post alerts of streams to this address; BALLCAST_WEBHOOK_SECRET signs them."),
]
MqttBroker = Annotated[
    str, typer.Option("--mqtt", envvar="BALLCAST_MQTT", help="Publish alerts: mqtt://[user:password@]host/topic.")
]
Cooldown = Annotated[float, seconds_option("Seconds without another alert of the same action of a stream.", most=86400)]
ClipsDays = Annotated[float, typer.Option("--clips-days", min=0.01, help="How long clips of alerts are kept.")]
ClipsSize = Annotated[float, typer.Option("--clips-size", min=0.01, help="GiB of all clips, at most.")]
LogFormat = Annotated[
    str, typer.Option("--log-format", help="text: warnings; json: every change of a stream, an object a line.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", help="Follow streams on a running Ray cluster, such as 10.0.0.1:6379; see `live`."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A host name of the server, besides its addresses; several."),
]
AllowNetwork = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-network",
        help="A network, such as 192.168.1.0/24, that added streams and the webhook may lead to, besides public "
        "addresses; several.",
    ),
]


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    model: Model = None,
    backbone: ModelBackbone = None,
    videos: Videos = None,
    stream: Streams = None,
    data: Data = Path("ballcast-data"),
    every: Every = 1.0,
    workers: Workers = 1,
    max_upload: MaxUpload = 4.0,
    max_minutes: MaxMinutes = 240.0,
    max_pixels: MaxPixels = 4096 * 2304,
    token: Token = None,
    no_token: NoToken = False,
    allow_host: AllowHost = None,
    trusted_proxy: TrustedProxy = None,
    allow_network: AllowNetwork = None,
    webhook: Webhook = "",
    mqtt: MqttBroker = "",
    cooldown: Cooldown = 30.0,
    clips_days: ClipsDays = 7.0,
    clips_size: ClipsSize = 10.0,
    log_format: LogFormat = "text",
    device: Device = "auto",
    runtime: Kind = "auto",
    size: PictureSize = None,
    cluster: Cluster = None,
    followers: Followers = 1,
    any_video: AnyVideo = False,
) -> None:
    """Serve the web page: upload or pick a video, or watch a stream, and see the anticipated actions arrive.

    The server listens on this machine only. To admit others, give --host an address of this machine (or 0.0.0.0). Use a
    proxy with TLS if you do not trust the network.

    Every request needs a token. A generated one is printed in the address; open that, or set your own in
    BALLCAST_TOKEN. On a machine that only you use, --no-token does without.

    Jobs and results in --data survive a restart. Users take turns with long videos. The HTTP interface is at /docs.

    Examples:

    ballcast serve --videos ~/matches

    ballcast serve --stream pitch=rtsp://camera.local/1 --host 0.0.0.0

    ballcast serve --model exported
    """
    require_server()
    from ballcast_server.access.auth import check_proxy
    from ballcast_server.jobs.library import Library
    from ballcast_server.predictors import make_predictor_factory
    from ballcast_server.settings import AlertTargets, Limits, Settings
    from ballcast_server.streams.cluster import ClusterSessions
    from ballcast_server.web.server import bind
    from ballcast_server.web.service import Service

    _log_as(log_format)
    every_ms = round(1000 * every)
    settings = Settings(
        data=data,
        videos=videos,
        streams=_named(stream or [], on_cluster=cluster is not None),
        token=_choose_token(token, no_token, host),
        hosts=(host, *(allow_host or ())),
        proxies=tuple(map(check_proxy, trusted_proxy or ())),
        workers=workers,
        every_ms=every_ms,
        networks=_networks(allow_network or [], webhook),
        alerts=AlertTargets(
            webhook=webhook, secret=os.environ.get("BALLCAST_WEBHOOK_SECRET", ""), mqtt=mqtt, cooldown_s=cooldown
        ),
        clips_days=clips_days,
        clips_bytes=round(clips_size * (1 << 30)),
        limits=Limits(upload_bytes=round(max_upload * (1 << 30)), video_s=60 * max_minutes, pixels=max_pixels),
    )
    check_followers(followers, cluster)
    Library(settings.videos)  # a folder that is missing is reported at once, too
    listener = bind(host, port)  # before the model, which takes seconds: an address in use is reported at once
    with ExitStack() as stack:
        sessions = None
        if cluster is not None:
            given = model_arguments(runtime, model, backbone, device, size)
            sessions = ClusterSessions(
                cluster, model=given, every_ms=every_ms, any_video=any_video, per_machine=followers
            )
            stack.enter_context(sessions)
        loaded = load_model(runtime, model, backbone, device, "serve", size)
        predictors = make_predictor_factory(
            loaded.new_runtime,
            every_ms=every_ms,
            any_video=any_video,
            cluster=sessions,
        )
        _run(Service(settings, predictors), listener, host, show_token=token is None)


def _run(service: "Service", listener: "socket.socket", host: str, *, show_token: bool) -> None:
    """Serve until stopped; print the address, if asked to with the token."""
    from ballcast_server.confined.sandbox import missing
    from ballcast_server.web.server import serve as run

    console = new_console()
    notes = new_console(stderr=True)
    secret = service.settings.token if show_token else None

    def ready(_: object) -> None:
        shown = f"[{host}]" if ":" in host else host
        token = f"login#{secret}" if secret else ""  # after #: not sent, not logged
        address = f"http://{shown}:{listener.getsockname()[1]}/{token}"
        console.print(f"ballcast is at {address} (Ctrl-C stops it)", soft_wrap=True, markup=False)

    if getattr(os, "geteuid", lambda: 1)() == 0:
        notes.print("the server runs as root; run it as a user without rights", soft_wrap=True)
    if lack := missing():
        notes.print(f"uploads are decoded without a sandbox: {lack}", soft_wrap=True, markup=False)
    os.umask(0o077)  # uploads and results are for this user only
    asyncio.run(run(service, listener, ready))


def _networks(allowed: list[str], webhook: str) -> "NetworkPolicy":
    """The networks that added streams and the webhook may lead to; an InputError if the webhook leads elsewhere."""
    from ballcast_server.networks import NetworkPolicy

    policy = NetworkPolicy.parse(allowed)
    if webhook:
        try:
            policy.check_new(webhook)
        except InputError as error:
            raise InputError(f"--webhook: {error}") from None
    return policy


def _log_as(kind: str) -> None:
    from ballcast_server.web.monitoring import log_as

    if kind not in ("text", "json"):
        raise InputError(f"--log-format {kind}: give text or json")
    log_as(kind)


def _choose_token(token: str | None, no_token: bool, host: str) -> str | None:
    """The token of the server: the given one, a generated one, or with --no-token None."""
    from ballcast_server.access.auth import check_token, is_local, new_token

    if not no_token:
        return new_token() if token is None else check_token(token)
    if token is not None:
        raise InputError("--no-token and a token (--token, BALLCAST_TOKEN) exclude each other; give one of them")
    if not is_local(host):
        raise InputError(f"--no-token: anyone could use the server at {host}; leave it out, or listen on localhost")
    return None


def _named(given: list[str], *, on_cluster: bool) -> dict[str, str]:
    """Parse NAME=ADDRESS options into addresses by name; for a cluster, files as its machines see them."""
    from ballcast_server.streams.config import STREAM_NAME

    streams: dict[str, str] = {}
    for text in given:
        name, mark, address = text.partition("=")
        if not mark or not address or not STREAM_NAME.fullmatch(name):
            raise InputError(f"--stream {text!r}: give NAME=ADDRESS, the name of letters, digits, - and _")
        if address == "-":
            raise InputError(f"--stream {text!r}: stdin cannot be opened twice; give a file or an address")
        if name in streams:
            raise InputError(f"--stream {name}: the name is used twice")
        streams[name] = (absolute(address) or address) if on_cluster else address
    return streams

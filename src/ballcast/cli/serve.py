"""`ballcast serve`: the server and its page."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.runtime import Kind, PictureSize, open_runtime
from ballcast.cli.shell import Device, app, new_console, seconds_option
from ballcast.core.errors import InputError


@app.command()
def serve(
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; any but this machine's own asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 8000,
    model: Annotated[
        str | None, typer.Option("--model", help="A model's folder or hub id; embedded by default.")
    ] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help="The backbone it was trained on.")] = None,
    videos: Annotated[Path | None, typer.Option("--videos", help="A folder of videos to pick from.")] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="NAME=ADDRESS, as `ballcast live` takes it; several. No others can be watched."),
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="Where uploads, jobs and results are kept.")] = Path(
        "ballcast-data"
    ),
    every: Annotated[float, seconds_option("Seconds from one anticipation to the next.", most=60)] = 1.0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Videos computed at once.")] = 1,
    max_upload: Annotated[float, typer.Option("--max-upload", min=0.001, help="GiB of one video, at most.")] = 4.0,
    max_minutes: Annotated[float, typer.Option("--max-minutes", min=0.1, help="Length of one video, at most.")] = 240.0,
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, help="Of one frame, at most; large frames are slow without a GPU.")
    ] = 1920 * 1088,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="BALLCAST_TOKEN", help="Ask everyone for it; made up if one is needed."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name under which the server is reached, besides addresses; several."),
    ] = None,
    device: Device = "auto",
    runtime: Kind = "torch",
    size: PictureSize = None,
) -> None:
    """Serve the page: upload or pick a video, or watch a stream, and see the anticipated actions arrive.

    It listens on this machine only. To let others in, give --host an address of yours (or 0.0.0.0): then everyone is
    asked for a token, which is printed, unless you give your own in BALLCAST_TOKEN. Put it behind a proxy with TLS if
    the network between is not yours.

    Jobs and results live in --data and survive a restart. Users take turns, so nobody's long video holds up the others.
    The interface is described at /docs.

    Examples:

    ballcast serve --videos ~/matches

    ballcast serve --stream pitch=rtsp://camera.local/1 --host 0.0.0.0

    ballcast serve --model exported --runtime onnx
    """
    import asyncio

    from ballcast.web.auth import check_token, is_local, new_token
    from ballcast.web.server import bind
    from ballcast.web.server import serve as run
    from ballcast.web.service import Service
    from ballcast.web.settings import Limits, Settings, make_engine

    streams = _named(stream or [])
    made = token is None and not is_local(host)
    if token is not None:
        check_token(token)
    settings = Settings(
        data=data,
        videos=videos,
        streams=streams,
        token=new_token() if made else token,
        hosts=(host, *(allow_host or ())),
        workers=workers,
        every_ms=round(1000 * every),
        limits=Limits(upload_bytes=round(max_upload * (1 << 30)), video_s=60 * max_minutes, pixels=max_pixels),
    )
    listener = bind(host, port)
    engine = make_engine(open_runtime(runtime, model, backbone, device, "serve", size), every_ms=settings.every_ms)
    service, console = Service(settings, engine), new_console()

    def ready(_: object) -> None:
        shown = f"[{host}]" if ":" in host else host
        console.print(f"ballcast is at http://{shown}:{listener.getsockname()[1]}/ (Ctrl-C stops it)", soft_wrap=True)
        if made:
            console.print(f"the token to log in with: {settings.token}", soft_wrap=True, markup=False)

    asyncio.run(run(service, listener, ready))


def _named(given: list[str]) -> dict[str, str]:
    """NAME=ADDRESS … as a table."""
    streams: dict[str, str] = {}
    for text in given:
        name, mark, address = text.partition("=")
        if not mark or not address or not re.fullmatch(r"[\w-]{1,40}", name):
            raise InputError(f"--stream {text!r}: give NAME=ADDRESS, the name of letters, digits, - and _")
        if address == "-":
            raise InputError(f"--stream {text!r}: stdin cannot be watched again and again; give a file or an address")
        if name in streams:
            raise InputError(f"--stream {name}: is named twice")
        streams[name] = address
    return streams

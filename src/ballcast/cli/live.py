"""`ballcast live`: forecasts along a stream, as a view in the terminal or as JSON lines."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ballcast.cli.runtime import (
    AnyVideo,
    Followers,
    Kind,
    Model,
    ModelBackbone,
    PictureSize,
    absolute,
    changed_emission,
    check_followers,
    load_model,
    model_arguments,
)
from ballcast.cli.shell import Device, app, new_console, number, seconds_option
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.util import install_command

if TYPE_CHECKING:
    from ballcast.live.broadcast import Subscription
    from ballcast.live.status import Record

    class Session(Protocol):
        """A stream that is followed: by a `LiveSession` here, or on a cluster."""

        error: BaseException | None

        def subscribe(self, *, capacity: int) -> Subscription[Record]: ...
        def close(self) -> None: ...
        def __enter__(self) -> Any: ...
        def __exit__(self, *_: object) -> None: ...


QUEUED_RECORDS = 4096  # that may wait for a slow reader of the output: about an hour
STOPS = (signal.SIGINT, signal.SIGTERM)


Source = Annotated[
    str,
    typer.Argument(
        help="A file (played in real time), rtsp://, rtmp://, srt://, http(s)://….m3u8, tcp://, /dev/video0, or -."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="key=value: mode=slot|class, vector=full|emitted, threshold=0.3, run=1."),
]
Every = Annotated[float, seconds_option("Seconds between two forecasts.")]
Json = Annotated[
    str | None, typer.Option("--json", help="Write one JSON object per line to this file, or to stdout: -.")
]
Speed = Annotated[
    float, typer.Option(min=0, max=1000, callback=number, help="Of a file or stdin; 0: as fast as possible.")
]
GiveUp = Annotated[
    float,
    typer.Option(
        min=0, max=86400, callback=number, help="Seconds to retry a stream that broke off, or is not there yet."
    ),
]

Cluster = Annotated[
    str | None,
    typer.Option(help="Follow it on a running Ray cluster, such as 10.0.0.1:6379; if its machine dies, on another."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Of a file: stop at damage instead of continuing after it.")]


@app.command()
def live(
    source: Source,
    overrides: Overrides = None,
    model: Model = None,
    backbone: ModelBackbone = None,
    every: Every = 1.0,
    json_: Json = None,
    speed: Speed = 1.0,
    give_up: GiveUp = 60.0,
    strict: Strict = False,
    device: Device = "auto",
    runtime: Kind = "auto",
    size: PictureSize = None,
    cluster: Cluster = None,
    followers: Followers = 1,
    any_video: AnyVideo = False,
) -> None:
    """Anticipate along a live stream: every second, the actions of the next 5 s.

    A terminal shows the actions to come; otherwise, or with --json, every forecast and every change of state is a JSON
    object per line. Times are milliseconds of the stream since its first frame.

    A stream that breaks off is opened again. Missing frames are reported and the memory starts again; frames are never
    invented. On a machine that is too slow, forecasts become rarer, and at last frames are skipped. Ctrl-C stops it.

    Examples:

    ballcast live rtsp://camera.local/1 --model runs/paper/best --backbone my-backbone

    ffmpeg -i anything -c copy -f mpegts - | ballcast live - --json actions.jsonl

    ballcast live rtsp://camera.local/1 --model exported
    """
    from ballcast.core.files import require_file
    from ballcast.video.addresses import is_stream
    from ballcast.video.sources import SourceOptions

    check_followers(followers, cluster)
    with ExitStack() as stack:
        show = stack.enter_context(_writer(json_, source))
        if not is_stream(source):  # before the model, which takes seconds: a missing file is noticed at once
            require_file(Path(source), "video")
        loaded = load_model(runtime, model, backbone, device, "live", size)
        emit = changed_emission(loaded.emit, overrides or (), shown=True)
        every_ms = round(1000 * every)
        session: Session
        if cluster is None:
            session = loaded.session(
                source,
                every_ms=every_ms,
                emit=emit,
                any_video=any_video,
                speed=speed,
                give_up_s=give_up,
                strict=strict,
            )
        else:
            sessions = _cluster_sessions(source)(
                cluster,
                model=model_arguments(runtime, model, backbone, device, size),
                every_ms=every_ms,
                emit=emit,
                any_video=any_video,
                per_machine=followers,
            )
            options = SourceOptions(speed=speed, give_up_s=give_up, strict=strict)
            session = stack.enter_context(sessions).session(absolute(source) or source, source=options)
        stack.enter_context(_until_stopped())
        records = stack.enter_context(session.subscribe(capacity=QUEUED_RECORDS))
        stack.enter_context(session)
        _follow(session, records, show)
    _check_end(session.error)


def _check_end(error: BaseException | None) -> None:
    """Raise what a session ended with, if it failed."""
    if isinstance(error, BallcastError):
        raise error
    if error is not None:
        raise RuntimeError("live anticipation failed") from error


def _cluster_sessions(source: str) -> Any:
    """The class whose instances follow streams on a cluster.

    It is the entry point `ray` in the group `ballcast.clusters`, which the server's package has.
    """
    if source == "-":
        raise InputError("--cluster: stdin is here, not on the cluster; give a stream's address")
    found = entry_points(group="ballcast.clusters", name="ray")
    if not found:
        raise InputError(f"--cluster is part of ballcast's server, which is not installed: {install_command('server')}")
    (point,) = found
    return point.load()


def _follow(session: "Session", records: "Subscription[Record]", show: "Callable[[Record], None]") -> None:
    """Show all records; Ctrl-C stops the session, and its last records are shown too."""
    try:
        while not records.over:
            record = records.get(0.2)  # with a timeout: Ctrl-C is only noticed between two calls
            if record is not None:
                show(record)
    except KeyboardInterrupt:
        session.close()
        for record in records:
            show(record)
        typer.secho("ballcast: stopped", err=True)


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, and end quietly when the reader of the output is gone.

    After the first signal further ones are ignored: a second Ctrl-C while threads and networks are taken down would
    abort the process.
    """
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for each in STOPS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, stop) for each in STOPS}
    try:
        yield
    except BrokenPipeError:
        from ballcast.cli.live_output import forget_stdout

        forget_stdout()
    finally:
        if not stopped:
            for each, handler in before.items():
                signal.signal(each, handler)


@contextmanager
def _writer(to: str | None, source: str) -> "Iterator[Callable[[Record], None]]":
    """Give a function that shows a record: as a JSON line if requested or not in a terminal, else in the view.

    Args:
        to: the file for JSON lines, "-" for stdout, None for the default.
        source: the stream's address; a file that is read is not overwritten.
    """
    from ballcast.cli.live_output import JsonLines, LiveView, write_to_stdout
    from ballcast.core.files import check_not_source

    watched = sys.stdout.isatty() and to != "-"
    with ExitStack() as stack:
        shows: list[Callable[[Record], None]] = []
        if to not in (None, "-"):
            path = Path(str(to))
            check_not_source(path, source)
            shows.append(stack.enter_context(JsonLines(path)).write)
        elif not watched:
            shows.append(write_to_stdout)
        if watched:
            shows.append(stack.enter_context(LiveView(new_console())).show)

        def show(record: "Record") -> None:
            for each in shows:
                each(record)

        yield show

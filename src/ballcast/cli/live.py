"""`ballcast live`: anticipation on a stream."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ballcast.cli.emission import changed_emission
from ballcast.cli.live_lines import Lines, forget_stdout, write_to_stdout
from ballcast.cli.runtime import Kind, PictureSize, open_runtime
from ballcast.cli.shell import Device, app, new_console, number, seconds_option
from ballcast.core.errors import BallcastError
from ballcast.core.files import check_not_source

if TYPE_CHECKING:
    from ballcast.inference.broadcast import Subscription
    from ballcast.inference.live import LiveSession
    from ballcast.inference.live_records import Record

ROOM = 4096  # records that may wait for a slow reader of our output: an hour of them
STOPS = (signal.SIGINT, signal.SIGTERM)


@app.command()
def live(
    source: Annotated[
        str,
        typer.Argument(help="A file (played in real time), rtsp://…, http(s)://….m3u8, tcp://…, /dev/video0, or -."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="key=value: mode=slot|class, vector=full|emitted, threshold=0.3, run=1."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="A model's folder, or its id on the hub; embedded by default.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="The backbone the model was trained on, as in `extract`.")
    ] = None,
    every: Annotated[float, seconds_option("Seconds from one anticipation to the next.")] = 1.0,
    json_: Annotated[
        str | None,
        typer.Option("--json", help="Write a JSON object a line to this file, or to stdout: -."),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(min=0, max=1000, callback=number, help="Of a file or stdin; 0: as fast as the machine goes."),
    ] = 1.0,
    give_up: Annotated[
        float, typer.Option(min=0, max=86400, callback=number, help="Seconds a stream that broke off is tried for.")
    ] = 60.0,
    device: Device = "auto",
    runtime: Kind = "torch",
    size: PictureSize = None,
) -> None:
    """Anticipate along a stream as it comes: every second, the actions of the next 5 s.

    In a terminal the actions to come are shown; otherwise, or with --json, every anticipation and every change of state
    is a JSON object on a line of its own. Times are milliseconds of the stream since its first frame.

    A stream that breaks off is opened again. Where frames are missing it says so and begins anew; they are never made
    up. If this machine is too slow it says so, anticipates less often, and at last skips ahead. Ctrl-C stops it.

    Examples:

    ballcast live rtsp://camera.local/1 --model runs/paper/best --backbone my-backbone

    ffmpeg -i anything -c copy -f mpegts - | ballcast live - --json actions.jsonl

    ballcast live rtsp://camera.local/1 --model exported --runtime onnx
    """
    from ballcast.inference.live import LiveSession
    from ballcast.inference.rolling import RollingAnticipator
    from ballcast.video.live_source import open_source

    with ExitStack() as stack:
        show = stack.enter_context(_writer(json_, source))
        engine = open_runtime(runtime, model, backbone, device, "live", size)()
        emit = changed_emission(engine.emit, overrides or (), shown=True)
        rolling = RollingAnticipator(engine, every_ms=round(1000 * every), emit=emit)
        session = LiveSession(open_source(source, speed=speed, give_up_s=give_up), rolling)
        stack.enter_context(_until_stopped())
        records = stack.enter_context(session.subscribe(room=ROOM))
        stack.enter_context(session)
        _follow(session, records, show)
    if isinstance(session.error, BallcastError):
        raise session.error
    if session.error is not None:
        raise RuntimeError("live anticipation failed") from session.error


def _follow(session: "LiveSession", records: "Subscription", show: "Callable[[Record], None]") -> None:
    """Show all records; Ctrl-C stops the session, whose last one is shown too."""
    try:
        while not records.over:
            record = records.get(0.2)  # not for ever: Ctrl-C is only noticed between two calls
            if record is not None:
                show(record)
    except KeyboardInterrupt:
        session.close()
        for record in records:
            show(record)
        typer.secho("ballcast: stopped", err=True)


@contextmanager
def _until_stopped() -> Iterator[None]:
    """SIGTERM is Ctrl-C, and a reader of our output that went away has had enough too.

    Once is enough: a second Ctrl-C while threads and networks are taken down would abort the process. So the signals
    stay ignored after the first, up to the end that it asked for.
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
        forget_stdout()
    finally:
        if not stopped:
            for each, handler in before.items():
                signal.signal(each, handler)


@contextmanager
def _writer(to: str | None, source: str) -> "Iterator[Callable[[Record], None]]":
    """What shows a record: JSON lines where asked for or where nobody watches, else the view."""
    watched = sys.stdout.isatty() and to != "-"
    with ExitStack() as stack:
        shows: list[Callable[[Record], None]] = []
        if to not in (None, "-"):
            path = Path(str(to))
            check_not_source(path, source)
            shows.append(stack.enter_context(Lines(path)).write)
        elif not watched:
            shows.append(write_to_stdout)
        if watched:
            from ballcast.cli.live_view import LiveView

            shows.append(stack.enter_context(LiveView(new_console())).show)

        def show(record: "Record") -> None:
            for each in shows:
                each(record)

        yield show

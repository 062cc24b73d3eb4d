"""`ballcast live`: forecasts along a stream, as a view in the terminal or as JSON lines."""

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ballcast.cli.runtime import Kind, Model, ModelBackbone, PictureSize, changed_emission, open_runtime
from ballcast.cli.shell import Device, app, new_console, number, seconds_option
from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, SHORT_NAMES
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.files import check_not_source, watching_space
from ballcast.core.palette import DARK
from ballcast.live.status import LAST, LiveForecast, Record, State, Status

if TYPE_CHECKING:
    from ballcast.live.broadcast import Subscription
    from ballcast.live.session import LiveSession
    from ballcast.live.status import Record


_NO_FRAME: frozenset[State] = frozenset({"opening", "waiting", *LAST})  # states before the first frame
_KEPT = 64  # records kept from before the first frame: waiting for a source may take all night


class JsonLines:
    """A file of JSON lines; enter it, then `write` records.

    The file is opened, and its old content lost, only at the first frame: a mistyped address does not cost an earlier
    recording. Records from before the first frame are then written first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._before: deque[Record] = deque(maxlen=_KEPT)

    def write(self, record: Record) -> None:
        self._before.append(record)
        if self._file is None:
            if isinstance(record, Status) and record.state in _NO_FRAME:
                return
            try:
                self._file = self._path.open("w", encoding="utf-8")
            except OSError as error:
                raise InputError(f"{self._path}: cannot be written: {error.strerror}") from None
        with watching_space(self._path):
            while self._before:
                self._file.write(_line(self._before.popleft()))
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with suppress(OSError):  # every line was flushed, or its failure was reported
                self._file.close()


def write_to_stdout(record: Record) -> None:
    try:
        sys.stdout.write(_line(record))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_stdout()
        raise InputError(f"stdout: cannot be written: {error.strerror}") from None


def forget_stdout() -> None:
    """Discard the rest of the output: its reader is gone, and Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(record: Record) -> str:
    return json.dumps(record.to_json(), allow_nan=False) + "\n"


ROWS, BAR = 6, 30
_STYLES = {"running": "green", "ended": "dim", "stopped": "dim", "error": "red", "opening": "dim"}


class LiveView:
    """A view of the coming actions, redrawn with each forecast; enter it, then `show` records."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._made: LiveForecast | None = None
        self._status: Status | None = None

    def show(self, record: Record) -> None:
        if isinstance(record, LiveForecast):
            self._made = record
        elif isinstance(record, Status):
            self._status = record
        self._live.update(self.render(), refresh=True)

    def render(self) -> RenderableType:
        return Group(self._actions(), self._line())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def _actions(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for justify in ("left", "right", "right", "left"):
            table.add_column(justify=justify)
        coming = self._made.anticipation if self._made is not None else None
        listed = sorted(coming.predictions, key=lambda p: -p.confidence)[:ROWS] if coming is not None else []
        for p in sorted(listed, key=lambda p: p.position_ms):
            assert coming is not None
            action, ahead = ACTION_INDEX[p.label], p.position_ms - coming.at_ms
            hue, place = DARK.actions[action], min(BAR - 1, BAR * ahead // HORIZON_MS)
            axis = Text().append("·" * place, "dim").append("●", hue).append("·" * (BAR - 1 - place), "dim")
            table.add_row(
                Text(SHORT_NAMES[action], hue), f"in {ahead / 1000:.1f} s", f"{100 * p.confidence:.0f} %", axis
            )
        for _ in range(ROWS - len(listed)):
            table.add_row("", "", "", "")
        return table

    def _line(self) -> Text:
        if self._status is None:
            return Text("")
        at_ms = self._made.anticipation.at_ms if self._made is not None else self._status.at_ms
        clock = f"{at_ms // 60_000:02d}:{at_ms // 1000 % 60:02d}"
        text = Text(f"{clock}  ").append(self._status.message, _STYLES.get(self._status.state, "yellow"))
        if self._made is not None:
            text.append(f"   {self._made.latency_ms:.0f} ms after the last frame", "dim")
        return text


QUEUED_RECORDS = 4096  # that may wait for a slow reader of the output: about an hour
STOPS = (signal.SIGINT, signal.SIGTERM)


Source = Annotated[
    str, typer.Argument(help="A file (played in real time), rtsp://…, http(s)://….m3u8, tcp://…, /dev/video0, or -.")
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
    float, typer.Option(min=0, max=86400, callback=number, help="Seconds to retry a stream that broke off.")
]


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
    device: Device = "auto",
    runtime: Kind = "torch",
    size: PictureSize = None,
) -> None:
    """Anticipate along a live stream: every second, the actions of the next 5 s.

    A terminal shows the actions to come; otherwise, or with --json, every forecast and every change of state is a JSON
    object on a line of its own. Times are milliseconds of the stream since its first frame.

    A stream that breaks off is opened again. Missing frames are reported and the memory starts anew; frames are never
    invented. On a machine that is too slow, forecasts become rarer, and at last frames are skipped. Ctrl-C stops it.

    Examples:

    ballcast live rtsp://camera.local/1 --model runs/paper/best --backbone my-backbone

    ffmpeg -i anything -c copy -f mpegts - | ballcast live - --json actions.jsonl

    ballcast live rtsp://camera.local/1 --model exported --runtime onnx
    """
    from ballcast.inference.rolling import RollingAnticipator
    from ballcast.live.session import LiveSession
    from ballcast.video.sources import open_source

    with ExitStack() as stack:
        show = stack.enter_context(_writer(json_, source))
        engine = open_runtime(runtime, model, backbone, device, "live", size)()
        emit = changed_emission(engine.emit, overrides or (), shown=True)
        rolling = RollingAnticipator(engine, every_ms=round(1000 * every), emit=emit)
        session = LiveSession(open_source(source, speed=speed, give_up_s=give_up), rolling)
        stack.enter_context(_until_stopped())
        records = stack.enter_context(session.subscribe(room=QUEUED_RECORDS))
        stack.enter_context(session)
        _follow(session, records, show)
    if isinstance(session.error, BallcastError):
        raise session.error
    if session.error is not None:
        raise RuntimeError("live anticipation failed") from session.error


def _follow(session: "LiveSession", records: "Subscription", show: "Callable[[Record], None]") -> None:
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

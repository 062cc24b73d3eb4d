"""A clip as a film strip: its last five seconds, the next five if the video has them, and a time axis with predictions
and events.
"""

import base64
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ballcast.core.actions import ACTION_INDEX, END_MS, HORIZON_MS, OBSERVED_MS, SHORT_NAMES
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.features.videos import find_sources
from ballcast.metrics.diagnosis import Pair
from ballcast.video.stills import stills

SHOWN_MS = 2 * HORIZON_MS  # the axis: as much before now as after it
TILE_MS = 1_000
TILE_WIDTH = 208  # pixels of a frame in the page
MARK_MS = 1_400  # a mark's width on a phone, where the axis is 340 px; closer marks go into separate rows
CODES = ("P", "D", "H", "HP", "TI", "C", "S", "O", "B", "T")


class Footage(NamedTuple):
    """A clip's video, and the time in it at which the clip begins."""

    path: Path
    start_ms: int = 0


def footage_in(folder: Path) -> dict[str, Footage]:
    """Find the clips' videos in a split's folder, by clip; there may be none."""
    if not folder.is_dir() or not any(folder.glob("*/*.mp4")):
        return {}
    return {source.name: Footage(source.path) for source in find_sources(folder) if source.size}


class Tile(NamedTuple):
    """A frame of the strip: its image as a data URI (None: the video has none), and its text."""

    source: str | None
    alt: str
    css: str


class Mark(NamedTuple):
    """A prediction or an event on the time axis."""

    action: int
    state: (
        str  # CSS classes: right, wrong, came or seen; and "before" if it ends at its time instead of beginning there
    )
    left: str
    row: int
    percent: str  # confidence of a prediction

    @property
    def name(self) -> str:
        return SHORT_NAMES[self.action]

    @property
    def code(self) -> str:
        return CODES[self.action]


class Lane(NamedTuple):
    """The marks of one kind, in `row_count` rows."""

    name: str
    marks: list[Mark]
    row_count: int


class Outcome(NamedTuple):
    """A line below the axis: a prediction or an event in words, and whether it was anticipated right."""

    action: int
    text: str
    good: bool
    outcome: str


class FilmStrip(NamedTuple):
    """The contents of `film_strip.html.j2`. `fault`: why there are no tiles although there is a video."""

    name: str
    note: str
    tiles: list[Tile]
    fault: str
    lanes: list[Lane]
    ticks: list[dict[str, str | bool]]
    lines: list[Outcome]


def film_strip(
    clip: Clip, pairs: Sequence[Pair], footage: Footage | None, note: str, *, percent: bool = True
) -> FilmStrip:
    """Build the strip of one clip.

    Args:
        clip: with its events, times in ms from its start.
        pairs: of predictions and events, times likewise.
        footage: 30 s of video, or more if it shows what came; None: the time axis without frames. A video that cannot
            be read gives a warning and a sentence on the page.
        note: text beside the clip's name.
        percent: whether confidences are probabilities, and shown.
    """
    tiles, fault = _tiles(footage) if footage else ([], "")
    before = [e for e in clip.observation if e.position_ms >= OBSERVED_MS - HORIZON_MS]
    predicted = [(p.prediction, "right" if p.right else "wrong") for p in pairs if p.prediction]
    came = [(e, "seen") for e in before] + [(p.event, "came") for p in pairs if p.event]
    ticks: list[dict[str, str | bool]] = [
        {"text": _second(ms), "now": ms == 0, "left": _left(OBSERVED_MS + ms)}
        for ms in range(-HORIZON_MS, HORIZON_MS + 1, 1_000)
    ]
    lanes = [_lane("anticipated", predicted, percent=percent), _lane("what came", came)]
    return FilmStrip(clip.name, note, tiles, fault, lanes, ticks, _outcomes(pairs, percent=percent))


def _tiles(footage: Footage) -> tuple[list[Tile], str]:
    """Return a tile per second, and the fault if the video cannot be read."""
    begin = OBSERVED_MS - HORIZON_MS
    times = list(range(begin + TILE_MS // 2, END_MS, TILE_MS))  # the middle of each second
    try:
        images = stills(footage.path, [footage.start_ms + time for time in times], TILE_WIDTH)
    except InputError as error:  # the scores are valid without it
        warnings.warn(f"{error}; the report shows no pictures of it", BallcastWarning, stacklevel=2)
        return [], f"No pictures: {footage.path.name} cannot be read."
    tiles = []
    for time, image in zip(times, images, strict=True):
        observed = time < OBSERVED_MS
        if image is None:
            tiles.append(Tile(None, "", "tile unseen"))
            continue
        alt = f"{abs(time - OBSERVED_MS) / 1000:.1f} s {'before' if observed else 'after'} the prediction"
        tiles.append(Tile(data_uri(image), alt, "tile" if observed else "tile later"))
    return tiles, ""


def data_uri(image: Image.Image, quality: int = 62) -> str:
    """Encode an image as WebP in a data URI, so that the page needs no other files."""
    file = BytesIO()
    image.save(file, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def _lane(name: str, items: "Sequence[tuple[Prediction | Event, str]]", *, percent: bool = True) -> Lane:
    """Place marks, each in the first row with free space. A mark begins at its time or, near the end, ends there."""
    free_from: list[int] = []  # of each row, in ms
    marks = []
    for item, state in sorted(items, key=lambda pair: pair[0].position_ms):
        before = item.position_ms > END_MS - MARK_MS
        begin = item.position_ms - MARK_MS if before else item.position_ms
        row = next((r for r, free in enumerate(free_from) if begin >= free), len(free_from))
        free_from[row:] = [begin + MARK_MS, *free_from[row + 1 :]]
        number = f"{100 * item.confidence:.0f}" if percent and isinstance(item, Prediction) else ""
        css = f"{state} before" if before else state
        marks.append(Mark(ACTION_INDEX[item.label], css, _left(item.position_ms), row, number))
    return Lane(name, marks, max(1, len(free_from)))


def _outcomes(pairs: Sequence[Pair], *, percent: bool) -> list[Outcome]:
    """Put the time axis into words, in order of time."""
    lines = []
    for p in sorted(pairs, key=lambda p: (p.prediction or p.event).position_ms):  # type: ignore[union-attr]
        if p.prediction is None:
            assert p.event is not None
            text = f"{_name(p.event)}, in {_ahead(p.event)}"
            outcome = "came, not anticipated"
            good = False
        else:
            made, good = p.prediction, p.right
            sure = f" {100 * made.confidence:.0f} %" if percent else ""
            text = f"{_name(made)}{sure}, in {_ahead(made)}"
            if p.event is None:
                outcome = "nothing came"
            elif p.right:
                outcome = f"came {_late(p.error_ms)}"
            else:
                outcome = f"{_name(p.event)} came instead, in {_ahead(p.event)}"
        item = p.prediction or p.event
        assert item is not None
        lines.append(Outcome(ACTION_INDEX[item.label], text, good, outcome))
    return lines


def _name(item: Prediction | Event) -> str:
    return SHORT_NAMES[ACTION_INDEX[item.label]]


def _ahead(item: Prediction | Event) -> str:
    return f"{(item.position_ms - OBSERVED_MS) / 1000:.1f} s"


def _late(error_ms: int) -> str:
    """Describe when the event came, relative to the prediction."""
    if abs(error_ms) < 50:
        return "on time"
    return f"{abs(error_ms) / 1000:.1f} s {'earlier' if error_ms > 0 else 'later'}"


def _second(ms: int) -> str:
    return f"{ms // 1000:+d} s".replace("-", "−") if ms else "now"


def _left(position_ms: int) -> str:
    return f"left: {100 * (position_ms - OBSERVED_MS + HORIZON_MS) / SHOWN_MS:.2f}%"

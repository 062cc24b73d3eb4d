"""A clip as a film strip: its last five seconds, the five to come if the video has them, and on one time axis what was
anticipated and what came.
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
from ballcast.report.markup import Markup, tag
from ballcast.video.stills import stills

SHOWN_MS = 2 * HORIZON_MS  # the axis: as much before now as after it
TILE_MS = 1_000
TILE_WIDTH = 208  # pixels of a picture in the file
MARK_MS = 1_400  # a mark's width on a phone, where the axis is 340 px; nearer ones stand in rows of their own
CODES = ("P", "D", "H", "HP", "TI", "C", "S", "O", "B", "T")


class Footage(NamedTuple):
    """Where a clip's pictures are: a video, and the time in it when the clip begins."""

    path: Path
    start_ms: int = 0


def footage_in(folder: Path) -> dict[str, Footage]:
    """The clips' videos in a split's folder, by clip; none is no fault."""
    if not folder.is_dir() or not any(folder.glob("*/*.mp4")):
        return {}
    return {source.name: Footage(source.path) for source in find_sources(folder) if source.size}


def film_strip(clip: Clip, pairs: Sequence[Pair], footage: Footage | None, note: str) -> Markup:
    """The strip of one clip. `footage`: 30 s of it, or more if it shows what came; None: the axis alone.

    A video that cannot be read is told, on the page and as a warning, and the axis is there all the same.

    note: what stands beside the clip's name. Times of `pairs` and of the clip's events in ms from its start.
    """
    return tag(
        "article",
        tag("h4", clip.name, tag("span", note, class_="quiet")),
        _tiles(footage) if footage else None,
        _axis(clip, pairs),
        _words(pairs),
        class_="clip",
    )


def _tiles(footage: Footage) -> Markup:
    begin = OBSERVED_MS - HORIZON_MS
    times = list(range(begin + TILE_MS // 2, END_MS, TILE_MS))  # the middle of each second
    tiles = []
    try:
        pictures = stills(footage.path, [footage.start_ms + time for time in times], TILE_WIDTH)
    except InputError as error:  # the scores hold without it
        warnings.warn(f"{error}; the report shows no pictures of it", BallcastWarning, stacklevel=2)
        return tag("p", f"No pictures: {footage.path.name} cannot be read.", class_="quiet")
    for time, picture in zip(times, pictures, strict=True):
        seen = time < OBSERVED_MS
        if picture is None:
            tiles.append(tag("span", class_="tile unseen"))
            continue
        told = f"{abs(time - OBSERVED_MS) / 1000:.1f} s {'before' if seen else 'after'} the prediction"
        tiles.append(tag("img", src=data_uri(picture), alt=told, class_="tile" if seen else "tile later"))
    return tag("div", tiles, class_="film")


def data_uri(picture: Image.Image, quality: int = 62) -> str:
    """The picture inside the page itself, as WebP."""
    file = BytesIO()
    picture.save(file, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def _axis(clip: Clip, pairs: Sequence[Pair]) -> Markup:
    before = [e for e in clip.observation if e.position_ms >= OBSERVED_MS - HORIZON_MS]
    said = [(p.prediction, "right" if p.right else "wrong") for p in pairs if p.prediction]
    came = [(e, "seen") for e in before] + [(p.event, "came") for p in pairs if p.event]
    ticks = [
        tag("span", _second(ms), class_="tick" + (" now" if ms == 0 else ""), style=_left(OBSERVED_MS + ms))
        for ms in range(-HORIZON_MS, HORIZON_MS + 1, 1_000)
    ]
    return tag(
        "div",
        tag("div", _lane("anticipated", said), _lane("what came", came), class_="lanes"),
        tag("div", ticks, class_="ticks"),
        class_="axis",
        aria_hidden="true",  # the list below says the same in words
    )


def _lane(name: str, marks: "Sequence[tuple[Prediction | Event, str]]") -> Markup:
    """The marks of one kind, each in the first row where it has room. A mark begins at its time, or at the end ends."""
    rows: list[int] = []  # where each row is free from
    drawn = []
    for item, state in sorted(marks, key=lambda mark: mark[0].position_ms):
        before = item.position_ms > END_MS - MARK_MS
        begin = item.position_ms - MARK_MS if before else item.position_ms
        row = next((r for r, free in enumerate(rows) if begin >= free), len(rows))
        rows[row:] = [begin + MARK_MS, *rows[row + 1 :]]
        drawn.append(_mark(item, f"{state} before" if before else state, row))
    return tag("div", tag("span", name, class_="quiet"), drawn, class_="lane", style=f"--rows: {max(1, len(rows))}")


def _mark(item: Prediction | Event, state: str, row: int) -> Markup:
    action = ACTION_INDEX[item.label]
    return tag(
        "span",
        tag("b", CODES[action], class_="code"),
        tag("b", SHORT_NAMES[action], class_="name"),
        f" {100 * item.confidence:.0f}" if isinstance(item, Prediction) else None,
        class_=f"mark {state}",
        style=f"{_left(item.position_ms)}; --row: {row}; --hue: var(--action-{action})",
    )


def _words(pairs: Sequence[Pair]) -> Markup:
    """What the axis shows, a line each in order of time."""
    lines = []
    for p in sorted(pairs, key=lambda p: (p.prediction or p.event).position_ms):  # type: ignore[union-attr]
        said = p.prediction
        if said is None:
            assert p.event is not None
            words, outcome, good = f"{_name(p.event)}, in {_ahead(p.event)}", "came, not anticipated", False
        else:
            words, good = f"{_name(said)} {100 * said.confidence:.0f} %, in {_ahead(said)}", p.right
            if p.event is None:
                outcome = "nothing came"
            elif p.right:
                outcome = f"came {_late(p.error_ms)}"
            else:
                outcome = f"{_name(p.event)} came instead, in {_ahead(p.event)}"
        item = said or p.event
        assert item is not None
        hue = f"--hue: var(--action-{ACTION_INDEX[item.label]})"
        sign = tag("span", "✓ " if good else "✗ ", class_="good" if good else "bad", aria_hidden="true")
        lines.append(tag("li", tag("i", class_="swatch", style=hue), words, ": ", sign, outcome))
    return tag("ul", lines, class_="said")


def _name(item: Prediction | Event) -> str:
    return SHORT_NAMES[ACTION_INDEX[item.label]]


def _ahead(item: Prediction | Event) -> str:
    return f"{(item.position_ms - OBSERVED_MS) / 1000:.1f} s"


def _late(error_ms: int) -> str:
    """When the event came, seen from the prediction."""
    if abs(error_ms) < 50:
        return "on time"
    return f"{abs(error_ms) / 1000:.1f} s {'earlier' if error_ms > 0 else 'later'}"


def _second(ms: int) -> str:
    return f"{ms // 1000:+d} s".replace("-", "−") if ms else "now"


def _left(position_ms: int) -> str:
    return f"left: {100 * (position_ms - OBSERVED_MS + HORIZON_MS) / SHOWN_MS:.2f}%"

"""Draw the strip below a video: forecast actions with their confidence, on a time axis that moves with the video."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, SHORT_NAMES
from ballcast.core.events import Forecast, Gap, Prediction, clock
from ballcast.core.palette import DARK, Colour, ink_on, rgb

PAST_MS = 700  # how long an action stays to be seen after its time
FADE_MS = 600  # how long what was anticipated one step ago takes to fade
MAX_ROWS = 5  # of labels; a video has as many as it needs; the least sure of what does not fit is left out

_GROUND, _PANEL, _LINE = rgb(DARK.ground), rgb(DARK.panel), rgb(DARK.line)
_TEXT, _QUIET = rgb(DARK.ink), rgb(DARK.quiet)
_HUES = tuple(map(rgb, DARK.actions))


@dataclass(frozen=True, slots=True)
class _Label:
    """A prediction's place: its time in pixels, the pill's left edge and width, and its row."""

    prediction: Prediction
    x: float
    left: float
    width: float
    row: int


class Strip:
    """Draws the strip of a video `width` pixels wide; `height` is how tall the strip is (even).

    timeline: what was anticipated, in order of `at_ms`. gaps: parts without forecasts, in order of time; they are named
    until there is one again. note: a line at the bottom that is always there.
    """

    def __init__(self, *, width: int, timeline: Sequence[Forecast], gaps: Sequence[Gap] = (), note: str = "") -> None:
        scale = max(0.8, (width / 400) ** 0.75)  # a wide video is seen from closer by: its text need not grow as much
        self._smooth = 2 if width < 800 else 1  # drawn at twice the size, for smooth edges
        self._timeline = sorted(timeline, key=lambda forecast: forecast.at_ms)
        self._made_at = [forecast.at_ms for forecast in self._timeline]
        self._gaps = list(gaps)
        self._note = note
        self._unit = scale * self._smooth  # pixels of the drawing a unit of the design
        self._font = ImageFont.load_default(size=10.5 * self._unit)
        self._small = ImageFont.load_default(size=8 * self._unit)
        self._axis, self._row = 13 * self._unit, 15 * self._unit  # heights of the axis on top and of a row of labels
        self._across = width * self._smooth
        self._placed = [self._place(forecast) for forecast in self._timeline]
        rows = max((label.row + 1 for labels in self._placed for label in labels), default=0)
        below = 3 + 11 * bool(note)
        self.width = width
        self.height = 2 * round(scale * (13 + 15 * max(2, rows) + below) / 2)
        self._size = (self._across, self.height * self._smooth)
        self._panel = self._draw_panel()

    def draw(self, now_ms: float) -> np.ndarray:
        """The strip at time `now_ms` of the video, (height, width, 3) uint8 RGB."""
        layer = self._panel.copy()
        step = bisect_right(self._made_at, now_ms) - 1
        gap = next((gap for gap in reversed(self._gaps) if gap.begin_ms <= now_ms), None)
        if gap is not None and (step < 0 or self._made_at[step] < max(gap.end_ms, gap.begin_ms + 1)):
            self._draw_gap(layer, gap, now_ms)
        elif step >= 0:
            age = now_ms - self._made_at[step]
            appearing = min(1.0, 0.25 + age / (0.4 * FADE_MS)) if step else 1.0
            if step and age < FADE_MS:
                self._draw_all(layer, self._placed[step - 1], now_ms, 0.7 * (1 - age / FADE_MS), ghost=True)
            self._draw_all(layer, self._placed[step], now_ms, appearing, ghost=False)
        return np.asarray(layer.resize((self.width, self.height), Image.Resampling.BOX))

    def _x(self, ahead_ms: float) -> float:
        return self._across * (ahead_ms + PAST_MS) / (HORIZON_MS + PAST_MS + 100)

    def _draw_panel(self) -> Image.Image:
        """All that does not move: the ground, the seconds to come, the line of now."""
        u = self._unit
        panel = Image.new("RGB", self._size, _GROUND)
        pen = ImageDraw.Draw(panel)
        pen.rectangle((0, self._axis, *self._size), fill=_PANEL)
        pen.rectangle((0, self._axis, self._x(0), self._size[1]), fill=_GROUND)
        for second in range(HORIZON_MS // 1000 + 1):
            x = self._x(1000 * second)
            name = f"+{second} s" if second else "now"
            pen.line(
                (x, self._axis if second else 0, x, self._size[1]), fill=_LINE if second else _TEXT, width=round(u)
            )
            pen.text((x - 3 * u, self._axis / 2), name, font=self._small, fill=_QUIET if second else _TEXT, anchor="rm")
        if self._note:
            place = (self._across - 4 * u, self._size[1] - 5.5 * u)
            pen.text(place, self._note, font=self._small, fill=_QUIET, anchor="rm")
        return panel

    def _draw_gap(self, layer: Image.Image, gap: Gap, now_ms: float) -> None:
        """Write why there is no forecast in place of the labels."""
        lost = f"{gap.reason}, {clock(gap.begin_ms)} to {clock(gap.end_ms)}"
        words = f"no forecast: {lost}" if now_ms < gap.end_ms else f"no forecast until 5 s are seen ({lost})"
        pen = ImageDraw.Draw(layer)
        place = (self._x(0) + 6 * self._unit, self._axis + self._row / 2)
        font = self._font
        if place[0] + font.getlength(words) > self._across:  # a narrow picture
            font = self._small
        pen.text(place, words, font=font, fill=_TEXT, anchor="lm")

    def _draw_all(
        self, image: Image.Image, labels: list[_Label], now_ms: float, strength: float, *, ghost: bool
    ) -> None:
        for label in labels:
            shift = self._x(label.prediction.position_ms - now_ms) - label.x
            passed = now_ms - label.prediction.position_ms
            visible = strength * min(1.0, max(0.0, 1 - passed / PAST_MS))
            if visible > 0:
                self._draw_label(image, label, shift, visible, ghost=ghost)

    def _place(self, forecast: Forecast) -> list[_Label]:
        """Where each prediction stands when it is made, the most confident first; it keeps its row while it moves."""
        u = self._unit
        gap = 3 * self._unit
        rows: list[list[tuple[float, float]]] = [[] for _ in range(MAX_ROWS)]
        labels = []
        for prediction in sorted(forecast.predictions, key=lambda p: -p.confidence):
            x = self._x(prediction.position_ms - forecast.at_ms)
            width = self._font.getlength(_words(prediction)) + 9 * u
            left = x if x + width <= self._across else x - width  # near the right edge the text stands before its time
            for row, taken in enumerate(rows):
                if all(left + width + gap <= a or left >= b + gap for a, b in taken):
                    taken.append((left, left + width))
                    labels.append(_Label(prediction, x, left, width, row))
                    break
        return labels

    def _draw_label(self, image: Image.Image, label: _Label, shift: float, visible: float, *, ghost: bool) -> None:
        u = self._unit
        hue = _HUES[ACTION_INDEX[label.prediction.label]]
        sure = min(1.0, max(0.0, label.prediction.confidence))
        x, left = label.x + shift, label.left + shift
        top = self._axis + 1.5 * u + label.row * self._row
        bottom = top + self._row - 1.5 * u
        box = (round(left), round(top), round(left + label.width), round(bottom))
        # Drawn on a separate patch and blended, so that everything in it fades together.
        patch = image.crop(box)
        pen = ImageDraw.Draw(patch)
        wide, tall = patch.size
        tone = _mix(_PANEL, hue, 0.18 + 0.5 * sure)
        stem = 0 if x <= left + 1 else wide - 2 * u
        if not ghost:
            pen.rounded_rectangle((0, 0, wide - 1, tall - 1), 2.5 * u, fill=tone)
            pen.rectangle((0, tall - 1.6 * u, sure * (wide - 1), tall - 1), fill=hue)  # how sure, as a length
            pen.text(
                (5 * u, (tall - 1.6 * u) / 2), _words(label.prediction), font=self._font, fill=ink_on(tone), anchor="lm"
            )
        pen.rectangle((stem, 0, stem + 2 * u, tall), fill=hue)  # when; of what was anticipated a step ago only this
        image.paste(Image.blend(image.crop(box), patch, visible), box[:2])


def _words(prediction: Prediction) -> str:
    return f"{SHORT_NAMES[ACTION_INDEX[prediction.label]]} {100 * prediction.confidence:.0f}%"


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    mixed = [round(p + (q - p) * share) for p, q in zip(a, b, strict=True)]
    return mixed[0], mixed[1], mixed[2]

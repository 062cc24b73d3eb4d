"""Score, clock and logo in the corners of a film."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tools.simulation.look import COLOURS, Look

FINE = 3  # graphics are drawn so many times as large, then scaled down
LETTERS = list("ABCDEFGHIKLMNOPRSTUV")  # of the names of teams
WHITE = (255, 255, 255, 255)
LOGO, LOGO_TEXT = (255, 255, 255, 150), (255, 255, 255, 170)

Overlay = tuple[NDArray[np.float32], NDArray[np.float32]]


class ScoreGraphics:
    """Draws the graphics of a match; `size` is (height, width) of its film. Details are drawn from `rng`."""

    def __init__(self, look: Look, font: Path, size: tuple[int, int], rng: np.random.Generator) -> None:
        self._font, self._size = str(font), size
        self._is_right = look.graphics.corner == "right"
        self._still = Image.new("RGBA", (size[1] * FINE, size[0] * FINE), (0, 0, 0, 0))
        self._clock: tuple[int, int, int] | None = None  # x and y of the clock's text, and the box's height
        self._start_s = 0
        if look.graphics.score:
            self._draw_score(look, rng)
        if look.graphics.logo:
            self._draw_logo(rng)
        self._drawn_s: int | None = None
        self._overlay: Overlay | None = None

    def at(self, second: int) -> Overlay:
        """Colours (height, width, 3), 0 to 255, and opacity (height, width, 1), 0 to 1, so long after the kick-off."""
        if self._overlay is None or (self._clock and self._drawn_s != second):
            self._overlay, self._drawn_s = self._draw(second), second
        return self._overlay

    def _draw(self, second: int) -> Overlay:
        image = self._still
        if self._clock:
            image = image.copy()
            x, y, height = self._clock
            minutes, seconds = divmod(self._start_s + second, 60)
            text = f"{minutes:02}:{seconds:02}"
            ImageDraw.Draw(image).text((x, y), text, font=self._face(int(height * 0.8)), fill=WHITE)
        height, width = self._size
        pixels = np.asarray(image.resize((width, height), Image.Resampling.BOX)).astype(np.float32)
        return pixels[..., :3], pixels[..., 3:] / np.float32(255)

    def _draw_score(self, look: Look, rng: np.random.Generator) -> None:
        draw = ImageDraw.Draw(self._still)
        width, height = int(rng.integers(190, 330)), int(rng.integers(28, 46))
        margin = int(rng.integers(30, 90))
        left = self._still.width - width - margin if self._is_right else margin
        top = int(rng.integers(24, 60))
        right, bottom = left + width, top + height
        dark = (*(int(value) for value in rng.integers(0, 90, 3)), int(rng.integers(190, 256)))
        draw.rectangle((left, top, right, bottom), fill=dark)
        names = left + width * 0.28  # the clock is left of them
        teams = look.kits
        draw.rectangle((names, top, names + 8, bottom), fill=(*COLOURS[teams.left.shirt], 255))
        draw.rectangle((right - 8, top, right, bottom), fill=(*COLOURS[teams.right.shirt], 255))
        face = self._face(int(height * 0.85))
        for x, text in ((14, "{} 0"), (width * 0.36, "0 {}")):
            name = "".join(rng.choice(LETTERS, 3))
            draw.text((names + x, top), text.format(name), font=face, fill=WHITE)
        self._clock = (left + 4, top, height)
        self._start_s = 60 * int(rng.integers(0, 85))

    def _draw_logo(self, rng: np.random.Generator) -> None:
        draw = ImageDraw.Draw(self._still)
        left = 40 if self._is_right else self._still.width - 130
        draw.ellipse((left, 36, left + 36, 72), fill=LOGO)
        draw.text((left + 42, 36), str(int(rng.integers(1, 9))), font=self._face(40), fill=LOGO_TEXT)

    def _face(self, size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(self._font, size)

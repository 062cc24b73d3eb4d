"""What a match looks like on television, drawn from its seed: camera, light, grass, kits, stadium, exposure, graphics.

Nothing here changes what is played: states and labels of a seed are the same under every look. All random numbers of a
look are drawn in `Look.draw`, in a fixed order, from `default_rng([seed, 20261118])`; those of `Extras` come from
`default_rng([seed, 1])`, so that they leave all others as they are. Only training seeds have extras.

Parameters are uniform in the ranges below unless noted. Pixels are those of the film, which has 224 lines.

    parameter               from     to       meaning
    camera.distance         62       105      m from the middle of the pitch to the camera
    camera.elevation        12       26       degrees that the camera is above the pitch's middle
    camera.x                -10      10       m along the touchline from the halfway line; 0 in half of the matches
    camera.dolly            0        0.8      share of the aim's x by which the camera moves too; 0 in 55 %, else ≥ 0.1
    camera.player_px        11.5     26       height of a player at the pitch's middle, in pixels; log-uniform
    camera.keep_size        0.2      1        how far zoom keeps players equally large at any distance
    camera.lag              0.2      1        s that the camera lags behind the ball
    camera.lead             0        0.5      s that it looks ahead along the ball's smoothed path
    camera.drift            0.82     5.92     m that its aim strays; 12 to 38 % of half the picture's width
    camera.drift_period     1.5      6        s in which the aim strays
    camera.breathe          0.04     0.2      standard deviation of the logarithm of its zoom
    camera.shake            0.05     1        pixels; log-uniform
    camera.offset           -0.1     0.14     share of the picture's height that the aim is above its middle
    camera.max_x            38       50       m from the middle that the aim stays within, along the pitch
    camera.max_y            16       28       the same across the pitch
    camera.roll             -0.015   0.015    radians; normal with standard deviation 0.005, clipped
    light.kind                                clear 40 %, cloudy 25 %, night 35 %
    light.azimuth           0        360      degrees, of the sun or the strongest floodlight
    light.height            22       80       degrees above the horizon; 22–65 clear, 50–80 cloudy, 45–75 night
    light.strength          0.35     1.2      of the sun; 0.8–1.2 clear, 0.35–0.55 cloudy, 0.7–1.0 night
    light.ambient           0.18     0.75     of the sky; 0.18–0.35 clear, 0.5–0.75 cloudy, 0.3–0.5 night
    light.shade             0.3      0.92     brightness of shadows; 0.3–0.5 clear, 0.75–0.92 cloudy, 0.55–0.85 night
    light.haze              0        0.1      at most 0.03 at night
    grass.brightness        1.7      2.5
    grass.contrast          -0.2     0.5      of green against red and blue
    grass.red               0.44     0.6      red against blue
    grass.texture           0.1      0.5      strength of the blades' texture
    grass.noise             0.1      0.9      strength of the patches
    grass.mowing            0        0.16     contrast of the mown pattern; 0 in 20 %, else ≥ 0.03
    grass.mowing_width      4.5      9.5      m
    grass.mowing_pattern                      across 50 %, checks 20 %, diagonal 10 %, rings 8 %, along 12 %
    grass.mud               0        1        opacity of worn patches; 0 in 60 %, else ≥ 0.2
    ball_scale              1.05     1.7      of a real ball's size, so that it has about 2.5 pixels; from player_px
    kits                                      of both teams, goalkeepers and referees: shirts of 18 colours that differ
                                              from each other (by 150 between teams, in RGB), in seven patterns; shorts,
                                              socks, a number
    stadium                                   crowd, seats, walls and floor in colours of their own; boards: the game's,
                                              LED in one colour, many colours, or plain
    exposure.level          84       124      median luma of the grass at the kick-off
    exposure.gamma          0.85     1.2
    exposure.saturation     0.5      1.05
    exposure.red            0.92     1.09     white balance
    exposure.blue           0.9      1.12
    exposure.blur           0        0.55     sigma in pixels; 0 in 40 %
    exposure.sharpen        0        0.9      0 in 60 %, else ≥ 0.2
    exposure.noise          0        3.5      standard deviation, of 255
    exposure.vignette       0        0.25     how much darker the corners are
    exposure.crf            22       30       compression of an MP4 (x264); whole numbers
    graphics                                  score and clock 70 %, left of the picture in two of three; a logo 50 %
    extras.ball                               training seeds only: one or two colours in 25 %, else white
    extras.shutter          0        0.02     training seeds only: s; a fast ball is a streak; 0 in 50 %, else ≥ 0.005
"""

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.simulation.seeds import is_training_seed

Colour = tuple[float, float, float]

LOOK_STREAM = 20261118  # the random numbers of looks, apart from those of fixtures, which use the seed alone
EXTRAS_STREAM = 1

COLOURS = {  # of shirts, shorts and socks: red, green, blue
    "white": (238, 238, 236),
    "red": (200, 20, 28),
    "darkred": (120, 14, 30),
    "blue": (22, 60, 180),
    "navy": (16, 22, 62),
    "sky": (110, 180, 232),
    "yellow": (240, 214, 30),
    "orange": (236, 104, 18),
    "black": (18, 18, 20),
    "green": (16, 120, 60),
    "lime": (170, 220, 40),
    "purple": (88, 36, 130),
    "pink": (236, 130, 170),
    "grey": (140, 144, 150),
    "claret": (110, 20, 50),
    "teal": (0, 120, 130),
    "gold": (196, 154, 60),
    "cyan": (40, 190, 220),
}
TEAMS_APART, OTHERS_APART, REFEREE_APART = 150, 100, 90  # distances of shirts in RGB, at least
PATTERNS = {"plain": 0.5, "stripes": 0.14, "hoops": 0.07, "halves": 0.05, "sash": 0.05, "sleeves": 0.12, "band": 0.07}
MOWING = {"across": 0.5, "checks": 0.2, "diagonal": 0.1, "rings": 0.08, "along": 0.12}  # in the order of the engine
BOARDS = ("game", "led", "many", "plain")
FLOORS = ((0.33, 0.5), (0.03, 0.55), (0.6, 0.3), (0.3, 0.1))  # hue and saturation: green, brown, blue, grey
PLAYER_M, BALL_M, BALL_PX = 1.8, 0.22, 2.5  # heights; and the pixels that a ball should have
BALL_SHARE = 0.25  # of training matches have a ball in colour
SHARP_SHARE = 0.5  # have no streaks of a fast ball
BALLS = {  # red, green, blue of its first and its second colour
    "yellow": ((255, 235, 60), (255, 235, 60)),
    "orange": ((255, 140, 40), (255, 140, 40)),
    "pink": ((255, 130, 185), (255, 130, 185)),
    "white and orange": ((255, 255, 255), (255, 120, 40)),
    "white and blue": ((255, 255, 255), (60, 90, 220)),
    "yellow and black": ((255, 235, 60), (60, 60, 70)),
    "yellow and pink": ((255, 235, 60), (255, 90, 150)),
}


@dataclass(frozen=True)
class LightKind:
    """Ranges and colours of a kind of light; `sun` and `sky_light` are multiplied by a strength each."""

    share: float
    height: tuple[float, float]
    sun: Colour
    strength: tuple[float, float]
    sky_light: Colour
    ambient: tuple[float, float]
    shade: tuple[float, float]
    sky: Colour
    haze: float


LIGHTS = {
    "clear": LightKind(
        0.4, (22, 65), (1.1, 1.0, 0.85), (0.8, 1.2), (0.75, 0.9, 1.2), (0.18, 0.35), (0.3, 0.5), (0.35, 0.55, 0.9), 0.1
    ),
    "cloudy": LightKind(
        0.25, (50, 80), (1, 1, 1), (0.35, 0.55), (0.95, 1.0, 1.08), (0.5, 0.75), (0.75, 0.92), (0.7, 0.72, 0.75), 0.1
    ),
    "night": LightKind(
        0.35, (45, 75), (1, 1, 1.03), (0.7, 1.0), (0.9, 0.95, 1.1), (0.3, 0.5), (0.55, 0.85), (0.01, 0.012, 0.02), 0.03
    ),
}


@dataclass(frozen=True)
class Camera:
    """The television camera; units are in the table above. `seed` is of its own random movements."""

    seed: int
    distance: float
    elevation: float
    x: float
    dolly: float
    player_px: float
    keep_size: float
    lag: float
    lead: float
    drift: float
    drift_period: float
    breathe: float
    shake: float
    offset: float
    max_x: float
    max_y: float
    roll: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Camera":
        player_px = math.exp(rng.uniform(math.log(11.5), math.log(26)))
        half_width = 358 / player_px / 2  # m, about
        return cls(
            player_px=player_px,
            distance=rng.uniform(62, 105),
            elevation=rng.uniform(12, 26),
            seed=int(rng.integers(1, 10000)),
            x=rng.uniform(-10, 10) if rng.random() < 0.5 else 0.0,
            dolly=0.0 if rng.random() < 0.55 else rng.uniform(0.1, 0.8),
            keep_size=rng.uniform(0.2, 1.0),
            lag=rng.uniform(0.2, 1.0),
            lead=rng.uniform(0.0, 0.5),
            drift=half_width * rng.uniform(0.12, 0.38),
            drift_period=rng.uniform(1.5, 6),
            breathe=rng.uniform(0.04, 0.2),
            shake=float(np.exp(rng.uniform(math.log(0.05), math.log(1.0)))),
            offset=rng.uniform(-0.10, 0.14),
            max_x=rng.uniform(38, 50),
            max_y=rng.uniform(16, 28),
            roll=float(np.clip(rng.normal(0, 0.005), -0.015, 0.015)),
        )


@dataclass(frozen=True)
class Light:
    """Sun or floodlights, and the sky; angles in degrees."""

    kind: str
    azimuth: float
    height: float
    strength: float
    ambient: float
    shade: float
    haze: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Light":
        name = str(rng.choice(list(LIGHTS), p=[kind.share for kind in LIGHTS.values()]))
        kind = LIGHTS[name]
        azimuth = math.degrees(rng.uniform(0, 2 * math.pi))
        heights = {name: rng.uniform(*kind.height) for name, kind in LIGHTS.items()}  # all are drawn, one is used
        return cls(
            kind=name,
            azimuth=azimuth,
            height=heights[name],
            strength=rng.uniform(*kind.strength),
            ambient=rng.uniform(*kind.ambient),
            shade=rng.uniform(*kind.shade),
            haze=rng.uniform(0.0, kind.haze),
        )

    @property
    def direction(self) -> NDArray[np.float64]:
        """(3,) from the pitch towards the light."""
        azimuth, height = math.radians(self.azimuth), math.radians(self.height)
        return np.array([math.cos(azimuth) * math.cos(height), math.sin(azimuth) * math.cos(height), math.sin(height)])

    @property
    def sun_colour(self) -> NDArray[np.float64]:
        return np.array(LIGHTS[self.kind].sun) * self.strength

    @property
    def ambient_colour(self) -> NDArray[np.float64]:
        return np.array(LIGHTS[self.kind].sky_light) * self.ambient

    @property
    def sky(self) -> Colour:
        return LIGHTS[self.kind].sky


@dataclass(frozen=True)
class Grass:
    brightness: float
    contrast: float
    red: float
    texture: float
    noise: float
    mowing: float
    mowing_width: float
    mowing_pattern: str
    mud: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Grass":
        return cls(
            brightness=rng.uniform(1.7, 2.5),
            contrast=rng.uniform(-0.2, 0.5),
            red=rng.uniform(0.44, 0.60),
            texture=rng.uniform(0.1, 0.5),
            noise=rng.uniform(0.1, 0.9),
            mowing=float(rng.choice([0.0, rng.uniform(0.03, 0.16)], p=[0.2, 0.8])),
            mowing_width=rng.uniform(4.5, 9.5),
            mowing_pattern=list(MOWING)[int(rng.choice(len(MOWING), p=list(MOWING.values())))],
            mud=float(rng.choice([0.0, rng.uniform(0.2, 1.0)], p=[0.6, 0.4])),
        )


@dataclass(frozen=True)
class Kit:
    """Colours by their names in COLOURS; `pattern` is one of PATTERNS, in the colours `shirt` and `second`."""

    shirt: str
    second: str
    pattern: str
    shorts: str
    socks: str
    number: str

    @classmethod
    def draw(cls, rng: np.random.Generator, shirt: str, *, plain: bool) -> "Kit":
        second = shirt
        while second == shirt:
            second = str(rng.choice(list(COLOURS)))
        pattern = "plain" if plain else str(rng.choice(list(PATTERNS), p=list(PATTERNS.values())))
        shorts = shirt if rng.random() < 0.45 else str(rng.choice(["white", "black", "navy", second]))
        socks = str(rng.choice([shirt, shorts, second], p=[0.55, 0.3, 0.15]))
        return cls(shirt, second, pattern, shorts, socks, number=str(rng.choice(["white", "black", "gold"])))


@dataclass(frozen=True)
class Kits:
    left: Kit
    right: Kit
    goalkeepers: Kit
    referees: Kit

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Kits":
        shirts: Sequence[str] = ()
        while not shirts or not _can_be_told_apart(*shirts):
            shirts = [str(name) for name in rng.choice(list(COLOURS), 4)]
        return cls(*(Kit.draw(rng, shirt, plain=index > 1) for index, shirt in enumerate(shirts)))


def _can_be_told_apart(left: str, right: str, goalkeepers: str, referees: str) -> bool:
    def distance(one: str, other: str) -> float:
        return float(np.linalg.norm(np.subtract(COLOURS[one], COLOURS[other], dtype=float)))

    return (
        distance(left, right) > TEAMS_APART
        and all(distance(goalkeepers, other) > OTHERS_APART for other in (left, right, referees))
        and all(distance(referees, team) > REFEREE_APART for team in (left, right))
    )


@dataclass(frozen=True)
class Stadium:
    """Colours from 0 to 1; `boards` is one of BOARDS."""

    crowd: Colour
    seats: Colour
    walls: Colour
    floor: Colour
    boards: str
    boards_seed: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Stadium":
        def colour(saturation: float) -> Colour:
            return _dimmed((rng.uniform(0, 1), rng.uniform(0, saturation)), rng.uniform(0.2, 0.9))

        return cls(
            crowd=_dimmed((rng.uniform(0, 1), rng.uniform(0, 0.35)), rng.uniform(0.25, 0.9)),
            seats=colour(0.9),
            walls=colour(0.3),
            floor=_dimmed(FLOORS[int(rng.integers(len(FLOORS)))], rng.uniform(0.25, 0.6)),
            boards=str(rng.choice(list(BOARDS))),
            boards_seed=int(rng.integers(1 << 30)),
        )


def _dimmed(hue_saturation: tuple[float, float], factor: float) -> Colour:
    red, green, blue = colorsys.hsv_to_rgb(*hue_saturation, 1.0)
    return red * factor, green * factor, blue * factor


@dataclass(frozen=True)
class Exposure:
    """What camera and broadcaster do to the picture; `crf` is only of films kept as MP4."""

    level: float
    gamma: float
    saturation: float
    red: float
    blue: float
    blur: float
    sharpen: float
    noise: float
    vignette: float
    crf: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Exposure":
        return cls(
            level=rng.uniform(84, 124),
            gamma=rng.uniform(0.85, 1.2),
            saturation=rng.uniform(0.5, 1.05),
            red=rng.uniform(0.92, 1.09),
            blue=rng.uniform(0.9, 1.12),
            blur=rng.uniform(0.0, 0.55) if rng.random() < 0.6 else 0.0,
            sharpen=rng.uniform(0.2, 0.9) if rng.random() < 0.4 else 0.0,
            noise=rng.uniform(0.0, 3.5),
            vignette=rng.uniform(0, 0.25),
            crf=int(rng.integers(22, 31)),
        )


@dataclass(frozen=True)
class Graphics:
    """Score and clock in a corner, and a logo in the other; `seed` is of their details and of the picture's noise."""

    score: bool
    corner: str
    logo: bool
    seed: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Graphics":
        return cls(
            score=bool(rng.random() < 0.7),
            corner=str(rng.choice(["left", "left", "right"])),
            logo=bool(rng.random() < 0.5),
            seed=int(rng.integers(1 << 30)),
        )


@dataclass(frozen=True)
class Extras:
    """What only films for training have.

    Attributes:
        ball: one of BALLS, or None for a white one.
        shutter: s that it is open for each picture; a fast ball becomes a streak.
    """

    ball: str | None = None
    shutter: float = 0.0

    @classmethod
    def draw(cls, seed: int) -> "Extras":
        if not is_training_seed(seed):
            return cls()
        rng = np.random.default_rng([seed, EXTRAS_STREAM])
        ball = list(BALLS)[int(rng.integers(len(BALLS)))]
        is_coloured = rng.random() < BALL_SHARE
        shutter = rng.uniform(0.005, 0.02)
        return cls(ball if is_coloured else None, 0.0 if rng.random() < SHARP_SHARE else shutter)


@dataclass(frozen=True)
class Look:
    """Everything that a seed determines about the film of a match."""

    camera: Camera
    light: Light
    grass: Grass
    kits: Kits
    stadium: Stadium
    exposure: Exposure
    graphics: Graphics
    extras: Extras

    @classmethod
    def draw(cls, seed: int) -> "Look":
        """The look of a match. The order of draws is part of what a seed means: add new ones to `Extras`."""
        rng = np.random.default_rng([seed, LOOK_STREAM])
        camera = Camera.draw(rng)
        rng.random()  # unused, but part of the order
        light = Light.draw(rng)
        rng.uniform()  # unused too
        return cls(
            camera,
            light,
            Grass.draw(rng),
            Kits.draw(rng),
            Stadium.draw(rng),
            Exposure.draw(rng),
            Graphics.draw(rng),
            Extras.draw(seed),
        )

    @property
    def ball_scale(self) -> float:
        """How much larger than a real one the ball is, so that it is not lost where players are small."""
        return float(np.clip(BALL_PX / (BALL_M / PLAYER_M * self.camera.player_px), 1.05, 1.7))

    def environment(self) -> dict[str, str]:
        """The variables by which the patched engine is told of camera and grass (tools/simulation/engine.patch)."""
        camera, grass = self.camera, self.grass
        elevation = math.radians(camera.elevation)
        values = {
            "CAMERA": 1,
            "SEED": camera.seed,
            "X": camera.x,
            "Y": -camera.distance * math.cos(elevation),
            "Z": camera.distance * math.sin(elevation),
            "DOLLY": camera.dolly,
            "SIZE": camera.player_px,
            "KEEP": camera.keep_size,
            "TAU": camera.lag,
            "LEAD": camera.lead,
            "DRIFT": camera.drift,
            "DRIFT_TAU": camera.drift_period,
            "BREATHE": camera.breathe,
            "SHAKE": camera.shake,
            "OFFSET": camera.offset,
            "MAX_X": camera.max_x,
            "MAX_Y": camera.max_y,
            "ROLL": camera.roll,
            "STREAK": self.extras.shutter / (BALL_M * self.ball_scale),  # in diameters of the ball for each m/s
            "FORWARD": 1,
            "SHADOW": 1,
            "GRASS": grass.brightness,
            "GRASS_CONTRAST": grass.contrast,
            "GRASS_RED": grass.red,
            "GRASS_TEX": grass.texture,
            "GRASS_NOISE": grass.noise,
            "MOW": grass.mowing,
            "MOW_M": grass.mowing_width,
            "MOW_KIND": list(MOWING).index(grass.mowing_pattern),
        }
        return {f"FILM_{name}": str(value) for name, value in values.items()}

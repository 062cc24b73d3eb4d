"""What a seed draws: the same every time, within the ranges that the module documents, as in the films there are."""

import re
from operator import attrgetter

import numpy as np
import pytest

from tools.simulation import look as look_module
from tools.simulation.look import BALLS, COLOURS, LIGHTS, MOWING, PATTERNS, Extras, Look
from tools.simulation.seeds import SETS, TEST_SEEDS, VALID_SEEDS

ROW = re.compile(r"^    (?P<name>[a-z_.]+) +(?P<low>-?[\d.]+) +(?P<high>-?[\d.]+)(?: |$)", re.MULTILINE)
DOCUMENTED = [(m["name"], float(m["low"]), float(m["high"])) for m in ROW.finditer(look_module.__doc__ or "")]
SEEDS = range(10001, 13001)


@pytest.fixture(scope="module")
def looks() -> list[Look]:
    return [Look.draw(seed) for seed in SEEDS]


def test_a_seed_has_one_look(looks: list[Look]) -> None:
    assert looks[:50] == [Look.draw(seed) for seed in SEEDS[:50]]
    assert len({look.camera.distance for look in looks}) == len(looks)


def test_every_number_is_documented() -> None:
    drawn = Look.draw(6001)
    numbers = {
        f"{part}.{name}"
        for part in ("camera", "light", "grass", "exposure", "extras")
        for name, value in vars(getattr(drawn, part)).items()
        if isinstance(value, float | int)
    }
    assert numbers - {"camera.seed"} | {"ball_scale"} == {name for name, _, _ in DOCUMENTED}


@pytest.mark.parametrize(("name", "low", "high"), DOCUMENTED)
def test_draws_fill_the_documented_range(name: str, low: float, high: float, looks: list[Look]) -> None:
    values = np.array([attrgetter(name)(look) for look in looks])
    assert low <= values.min()
    assert values.max() <= high
    assert np.ptp(values) > 0.9 * (high - low)


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("camera.x", 0.5),
        ("camera.dolly", 0.55),
        ("grass.mowing", 0.2),
        ("grass.mud", 0.6),
        ("exposure.blur", 0.4),
        ("exposure.sharpen", 0.6),
        ("extras.shutter", 0.5),
    ],
)
def test_some_are_often_off(name: str, zero: float, looks: list[Look]) -> None:
    values = np.array([attrgetter(name)(look) for look in looks])
    assert (values == 0).mean() == pytest.approx(zero, abs=0.03)


def test_light_goes_with_its_kind(looks: list[Look]) -> None:
    for name, kind in LIGHTS.items():
        lights = [look.light for look in looks if look.light.kind == name]
        assert len(lights) / len(looks) == pytest.approx(kind.share, abs=0.03)
        for field in ("height", "strength", "ambient", "shade"):
            low, high = getattr(kind, field)
            assert all(low <= getattr(light, field) <= high for light in lights)
        assert all(light.haze <= kind.haze for light in lights)
    for look in looks[:100]:
        assert np.linalg.norm(look.light.direction) == pytest.approx(1)
        assert look.light.direction[2] > 0.3  # never below the horizon: shadows would be endless


def test_shirts_can_be_told_apart(looks: list[Look]) -> None:
    def distance(one: str, other: str) -> float:
        return float(np.linalg.norm(np.subtract(COLOURS[one], COLOURS[other], dtype=float)))

    for look in looks:
        left, right, keepers, referees = (kit.shirt for kit in vars(look.kits).values())
        assert distance(left, right) > 150
        assert min(distance(keepers, other) for other in (left, right, referees)) > 100
        assert min(distance(referees, team) for team in (left, right)) > 90
        assert all(kit.second != kit.shirt for kit in vars(look.kits).values())
        assert look.kits.goalkeepers.pattern == look.kits.referees.pattern == "plain"
    assert {look.kits.left.pattern for look in looks} == set(PATTERNS)
    assert {look.grass.mowing_pattern for look in looks} == set(MOWING)


def test_films_that_there_are_can_be_made_again() -> None:
    """Draws of three seeds, as they were when the first films were made: a new draw goes into Extras."""
    test, valid, train = (Look.draw(seed) for seed in (7001, 8002, 6001))
    assert test.camera.distance == pytest.approx(78.73041783809262)
    assert test.exposure.level == pytest.approx(93.10806957340432)
    assert (test.light.kind, test.stadium.boards, test.graphics.seed) == ("night", "led", 49784625)
    assert [kit.shirt for kit in vars(test.kits).values()] == ["purple", "white", "orange", "lime"]
    assert valid.camera.player_px == pytest.approx(25.641226568611323)
    assert (valid.kits.left.pattern, valid.exposure.crf, valid.graphics.seed) == ("stripes", 30, 912948552)
    assert train.exposure.blur == pytest.approx(0.5469389190574392)
    assert (train.light.kind, train.grass.mowing_pattern, train.graphics.seed) == ("clear", "diagonal", 85399973)


def test_only_training_matches_have_extras(looks: list[Look]) -> None:
    for seed in (*TEST_SEEDS, *VALID_SEEDS, *range(1, 50), *range(7011, 7050), *range(9990, 10001)):
        assert Look.draw(seed).extras == Extras(ball=None, shutter=0)
        assert Look.draw(seed).environment()["FILM_STREAK"] == "0.0"
    balls = [look.extras.ball for look in looks]
    assert np.mean([ball is not None for ball in balls]) == pytest.approx(0.25, abs=0.03)
    assert set(balls) == {None, *BALLS}
    assert any(Look.draw(seed).extras.ball for seed in SETS["films-train"][0])
    assert any(Look.draw(seed).extras.shutter for seed in SETS["films-train"][0])


def test_the_engine_reads_every_variable_of_a_look() -> None:
    patch = (look_module.__file__).replace("look.py", "engine.patch")
    with open(patch, encoding="utf-8") as file:
        text = file.read()
    environment = Look.draw(7001).environment()
    assert set(environment) <= set(re.findall(r'"(FILM_[A-Z_]+)"', text))
    assert environment["FILM_MOW_KIND"] == "2"
    assert float(environment["FILM_Y"]) == pytest.approx(-76.39273073985854)
    assert float(environment["FILM_Z"]) == pytest.approx(19.04283022736181)


def test_the_ball_is_about_as_large_everywhere(looks: list[Look]) -> None:
    for look in looks[:300]:
        pixels = look.ball_scale * 0.22 / 1.8 * look.camera.player_px
        assert 2.3 < pixels < 3.4

"""The page and the picture of a match's forecasts."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest

from ballcast.core.errors import MissingExtra
from ballcast.core.feed_forecast import SHOT, FeedForecast, MatchSummary, Shot, ShotChance, shot_chances
from ballcast.report.feed_page import draw_match, feed_page, page_data, write_feed_page


def made(count: int = 60) -> tuple[list[FeedForecast], MatchSummary]:
    rng = np.random.default_rng(0)
    forecasts = []
    for i in range(count):
        chance = np.sort(rng.random((3, 10, 5)).astype(np.float32) / 4, -1)
        zones = rng.random((12, 8)).astype(np.float32)
        label = "pass" if i % 3 == 0 else ""
        period, at = ("1H", 5000 + 1000 * i) if i < 40 else ("2H", 5000 + 1000 * (i - 40))
        begin = 0 if period == "1H" else 50_000
        forecasts.append(FeedForecast(begin + at, (), period, at, label, i % 2, chance, zones / zones.sum()))
    shots = (Shot(20_000, 0, 1), Shot(30_000, 1, 0), Shot(60_000, 1, -1))
    return forecasts, MatchSummary("7", "wyscout", ("<b>A</b>", "B & C"), {"1H": 0, "2H": 50_000}, shots)


def test_the_page_holds_the_forecasts_between_events() -> None:
    forecasts, match = made()
    data = page_data(forecasts, match, shot_chances(forecasts, match))
    regular = [f for f in forecasts if not f.event]
    assert data["at"] == [f.at_ms for f in regular]
    shot = np.frombuffer(base64.b64decode(data["shot"]), np.uint16).reshape(-1, 2)
    np.testing.assert_allclose(shot / 1000, [f.chance[:2, SHOT, -1] for f in regular], atol=6e-4)
    zones = np.frombuffer(base64.b64decode(data["zones"]), np.uint8).reshape(-1, 12, 8)
    assert (zones.max((1, 2)) == 255).all()
    assert data["clock"][-1] == match.clock(regular[-1].at_ms)
    assert data["clock"][-1].startswith("2H 45:")


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    forecasts, match = made()
    html = feed_page(page_data(forecasts, match, shot_chances(forecasts, match)), match)
    assert "<b>A</b>" not in html
    assert "&lt;b&gt;A&lt;/b&gt;" in html
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert held is not None
    assert json.loads(held.group(1))["names"] == ["<b>A</b>", "B & C"]
    served = feed_page(page_data(forecasts, match, []), match, script="/feed_page.js")
    assert '<script src="/feed_page.js">' in served
    assert "<style>" not in served  # the server allows no inline styles and scripts


def test_chances_say_what_came() -> None:
    forecasts, match = made()
    for chance in shot_chances(forecasts, match):
        came = [s for s in match.shots if chance.at_ms <= s.at_ms < chance.at_ms + 5000]
        assert chance.shot == bool(came)
        assert chance.goal == any(s.goal for s in came)


def test_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forecasts, match = made()
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "mplsoccer", None)
        with pytest.raises(MissingExtra, match="mplsoccer"):
            draw_match(forecasts, match, [])
    pytest.importorskip("mplsoccer")
    picture = write_feed_page(tmp_path / "m.html", forecasts, match, shot_chances(forecasts, match, 4))
    assert picture == tmp_path / "m.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert draw_match(forecasts, match, [ShotChance(forecasts[0].at_ms, 0, 0.5, True, False)])

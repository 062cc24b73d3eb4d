"""A match's forecasts as one HTML page with a replay, and as a picture: timeline, most likely shots, next action.

The page is laid out by `feed_page.html.j2` and drawn by `feed_page.js`, which the server's page uses too.
"""

import base64
from collections.abc import Sequence
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.actions import SHORT_NAMES
from ballcast.core.errors import MissingExtra
from ballcast.core.event_schema import ZONES
from ballcast.core.feed_forecast import EITHER, SHOT, FeedForecast, MatchSummary, ShotChance
from ballcast.core.files import write_bytes
from ballcast.report.report import TEMPLATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEAM_COLOURS = ("#f94e83", "#2c93b7")  # as in feed_page.js
PITCHES = 3  # chances that are shown on a pitch in the picture


def page_data(forecasts: Sequence[FeedForecast], match: MatchSummary, chosen: Sequence[ShotChance]) -> dict[str, Any]:
    """What `feed_page.js` draws: forecasts between events, packed, and the match's shots and their chances.

    Probabilities within 5 s are per mille: `teams` (n, 2) of a shot, `actions` (n, 10); `zones` (n, 12, 8) of 255.
    All are bytes in base64, `at` in ms.
    """
    regular = [forecast for forecast in forecasts if not forecast.event] or list(forecasts)
    chance = np.stack([forecast.chance[..., -1] for forecast in regular])  # (n, 3, 10)
    zones = np.stack([forecast.zones for forecast in regular])
    most = zones.max((1, 2), keepdims=True).clip(1e-6)
    return {
        "match": match.match,
        "names": list(match.teams),
        "labels": list(SHORT_NAMES),
        "begins": dict(match.begins),
        "at": [forecast.at_ms for forecast in regular],
        "clock": [match.clock(forecast.at_ms) for forecast in regular],
        "team": [forecast.team for forecast in regular],
        "shot": _packed(1000 * chance[:, :EITHER, SHOT], np.uint16),
        "actions": _packed(1000 * chance[:, EITHER], np.uint16),
        "zones": _packed(255 * zones / most, np.uint8),
        "grid": list(ZONES),
        "shots": [[shot.at_ms, shot.team, shot.goal] for shot in match.shots],
        "moments": [
            [m.at_ms, m.team, round(m.probability, 3), int(m.shot) + int(m.goal), match.clock(m.at_ms)] for m in chosen
        ],
    }


def _packed(values: Any, kind: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(np.rint(values).astype(kind)).tobytes()).decode()


def feed_page(data: dict[str, Any], match: MatchSummary, *, script: str | None = None) -> str:
    """The page as HTML; `script`: the address of `feed_page.js`, None to put it into the page."""
    inline = None if script else read_script()
    return TEMPLATES.get_template("feed_page.html.j2").render(
        data=data,
        match=match,
        script=script,
        inline=inline,
        version=__version__,
        colours=TEAM_COLOURS,
        theme=palette.DARK,
    )


def read_script() -> str:
    """The text of `feed_page.js`."""
    return (files("ballcast.report") / "feed_page.js").read_text(encoding="utf-8")


def write_feed_page(
    path: Path, forecasts: Sequence[FeedForecast], match: MatchSummary, chosen: Sequence[ShotChance]
) -> Path:
    """Write the page, and the picture beside it with the suffix .png; returns the picture's path."""
    picture = path.with_suffix(".png")
    write_bytes(picture, draw_match(forecasts, match, chosen))
    write_bytes(path, feed_page(page_data(forecasts, match, chosen), match).encode())
    return picture


def draw_match(forecasts: Sequence[FeedForecast], match: MatchSummary, chosen: Sequence[ShotChance]) -> bytes:
    """Draw the match as a PNG: the timeline of both teams, and the most likely shots on pitches."""
    try:
        from mplsoccer import Pitch
    except ImportError:
        raise MissingExtra("mplsoccer", "events") from None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.5), layout="constrained", facecolor="white")
    rows = figure.add_gridspec(2, PITCHES, height_ratios=(1.15, 1))
    _draw_timeline(figure.add_subplot(rows[0, :]), forecasts, match, chosen)
    at = {forecast.at_ms: forecast for forecast in forecasts}
    for column, chance in enumerate(chosen[:PITCHES]):
        axes = figure.add_subplot(rows[1, column])
        forecast = at[chance.at_ms]
        Pitch(pitch_type="wyscout", line_zorder=2, linewidth=1).draw(ax=axes)
        edges = [np.linspace(0, 100, n + 1) for n in ZONES]
        axes.pcolormesh(*edges, forecast.zones.T, cmap="Reds", zorder=1)
        came = "goal" if chance.goal else "shot" if chance.shot else "no shot"
        title = f"{match.clock(chance.at_ms)}  {match.teams[chance.team]}"
        axes.set_title(f"{title}\nshot within 5 s: {100 * chance.probability:.0f} % ({came})", fontsize=10)
        axes.text(
            50, 104, f"where the next action is expected; {match.teams[forecast.team]} →", ha="center", fontsize=8
        )
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _draw_timeline(
    axes: "Axes", forecasts: Sequence[FeedForecast], match: MatchSummary, chosen: Sequence[ShotChance]
) -> None:
    """P(shot within 5 s) along the match, team 1 upwards, team 2 downwards; shots and goals at the edge."""
    minutes = np.array([forecast.at_ms for forecast in forecasts]) / 60_000
    percent = 100 * np.stack([forecast.chance[:EITHER, SHOT, -1] for forecast in forecasts])
    top = max(20.0, float(percent.max()) * 1.15)
    for team, sign in ((0, 1), (1, -1)):
        axes.fill_between(minutes, 0, sign * percent[:, team], color=TEAM_COLOURS[team], lw=0, label=match.teams[team])
        for shot in (shot for shot in match.shots if shot.team == team):
            side = -sign if shot.goal < 0 else sign
            goal = shot.goal != 0
            axes.plot(
                shot.at_ms / 60_000,
                side * top * 0.94,
                marker="*" if goal else "o",
                ms=13 if goal else 4,
                color="black" if goal else TEAM_COLOURS[team],
                ls="",
            )
    for begin in list(match.begins.values())[1:]:
        axes.axvline(begin / 60_000, color="grey", lw=1, ls="--")
    for chance in chosen[:PITCHES]:
        side = 1 - 2 * chance.team
        axes.annotate(
            f"{100 * chance.probability:.0f} %",
            (chance.at_ms / 60_000, side * min(100 * chance.probability, 0.8 * top)),
            ha="center",
            va="bottom" if side > 0 else "top",
            fontsize=8,
        )
    axes.set(ylim=(-top, top), xlim=(0, float(minutes.max())), xlabel="minutes played", ylabel="shot within 5 s, %")
    axes.set_title(f"{match.teams[0]} – {match.teams[1]}   (● shot, ★ goal)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    axes.legend(loc="lower right", fontsize=9)

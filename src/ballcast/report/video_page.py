"""The forecasts along a video as one HTML page to share: timeline, most confident predictions with pictures.

Laid out by `video_page.html.j2`, drawn by `video_page.js`; it needs nothing but a browser.
"""

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ballcast import __version__
from ballcast.core import palette
from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, SHORT_NAMES
from ballcast.core.events import Forecast, Gap, clock
from ballcast.core.files import write_bytes
from ballcast.core.timeline_summary import TimelineSummary, summarise
from ballcast.report.report import TEMPLATES, asset
from ballcast.video.stills import stills

STILL_WIDTH = 320


def write_video_page(
    path: Path,
    video: Path | None,
    timeline: Sequence[Forecast],
    about: Mapping[str, Any],
    gaps: Sequence[Gap],
    *,
    name: str = "",
    note: str = "",
) -> None:
    """Write the page of a video.

    Args:
        path: the HTML file.
        video: the video's file, for pictures of the most confident predictions; None: without them.
        timeline: its forecasts. gaps: where nothing could be forecast.
        about: as in the JSON file: `every_ms`, `model`, `origin`.
        name: of the page; by default the video's. note: a sentence below it, instead of one on the model's origin.
    """
    every_ms = int(about["every_ms"])
    found = summarise(timeline, every_ms)
    page = TEMPLATES.get_template("video_page.html.j2").render(
        name=name or (video.name if video else ""),
        note=note,
        model=Path(str(about.get("model", ""))).name,
        every=f"{every_ms / 1000:g}",
        origin=about.get("origin", ""),
        gaps=[(clock(gap.begin_ms), f"{(gap.end_ms - gap.begin_ms) / 1000:.1f} s", gap.reason) for gap in gaps],
        expected=[(SHORT_NAMES[ACTION_INDEX[k]], ACTION_INDEX[k], f"{v:.0f}") for k, v in found.expected.items()],
        highlights=_highlights(found, video),
        forecasts=len(timeline),
        data=page_data(timeline, gaps, every_ms),
        version=__version__,
        style=Markup(palette.css()) + asset("style.css") + asset("video_page.css"),
        script=asset("video_page.js"),
    )
    write_bytes(path, page.encode())


def page_data(timeline: Sequence[Forecast], gaps: Sequence[Gap], every_ms: int) -> dict[str, Any]:
    """What `video_page.js` draws: `at` in ms, and of each forecast its predictions as (action, ms ahead, per cent), and
    the per cent of each action within 5 s, if measured."""
    made = [
        [
            [ACTION_INDEX[p.label], p.position_ms - one.at_ms, round(100 * p.confidence)]
            for p in sorted(one.predictions, key=lambda p: -p.confidence)
        ]
        for one in timeline
    ]
    ends = [one.at_ms + HORIZON_MS for one in timeline[-1:]] + [gap.end_ms for gap in gaps]
    return {
        "at": [one.at_ms for one in timeline],
        "made": made,
        "within": [[round(100 * p) for p in one.within_5s] for one in timeline],
        "gaps": [gap.to_json() for gap in gaps],
        "labels": list(SHORT_NAMES),
        "every": every_ms,
        "end": max(ends, default=0),
    }


def _highlights(found: TimelineSummary, video: Path | None) -> list[dict[str, Any]]:
    """The most confident predictions, each with the picture at the time of its forecast."""
    times = [highlight.forecast.at_ms for highlight in found.highlights]
    # None of the times lies in a gap.
    pictures = stills(video, times, STILL_WIDTH, strict=False) if video else [None] * len(times)
    rows = []
    for highlight, picture in zip(found.highlights, pictures, strict=True):
        best = highlight.best
        rows.append(
            {
                "at": highlight.forecast.at_ms,
                "clock": clock(highlight.forecast.at_ms),
                "action": ACTION_INDEX[best.label],
                "label": SHORT_NAMES[ACTION_INDEX[best.label]],
                "ahead": f"{(best.position_ms - highlight.forecast.at_ms) / 1000:.1f}",
                "sure": round(100 * best.confidence),
                "picture": "" if picture is None else _jpeg(picture),
            }
        )
    return rows


def _jpeg(picture: Any) -> str:
    file = BytesIO()
    picture.save(file, "JPEG", quality=72)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()

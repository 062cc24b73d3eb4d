"""Files of the forecasts along a video: our JSON, OSL JSON, CSV and the video with an overlay.

Times are milliseconds of the video. A confidence is how often such a prediction came true where the model was
validated, a score is the network's own; see `ballcast.inference.stream_predictor.StreamPredictor`.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Gap
from ballcast.core.files import check_not_source, check_writable, write_bytes, write_json
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.data.labels.osl import write_osl
from ballcast.inference.forecasts import COLUMNS, prediction_rows
from ballcast.video.overlay import check_overlay, write_overlay


@dataclass(frozen=True)
class OutputFiles:
    """The files to write of a timeline; None: do not write this one."""

    json: Path
    osl: Path | None = None
    csv: Path | None = None
    overlay: Path | None = None
    html: Path | None = None  # written by `ballcast.report.video_page`

    def check(self, video: Path) -> None:
        """Raise an InputError, before the work begins, if a file cannot be written or is the `video` itself."""
        seen = set()
        for target in (self.json, self.osl, self.csv, self.overlay, self.html):
            if target is None:
                continue
            check_writable(target)
            if target.is_dir():
                raise InputError(f"{target}: is a folder; give the file to write")
            check_not_source(target, video)
            if target.resolve() in seen:
                raise InputError(f"{target}: is given twice; give each output its own file")
            seen.add(target.resolve())
        if self.overlay is not None:
            check_overlay(video, self.overlay)

    def write(
        self,
        timeline: Sequence[Forecast],
        video: Path,
        about: Mapping[str, Any],
        progress: ProgressCallback = no_progress,
        *,
        source: Mapping[str, str] | None = None,
        gaps: Sequence[Gap] = (),
        part: tuple[int, int | None] = (0, None),
    ) -> None:
        """Write all files but the page, each atomically.

        Args:
            timeline: the forecasts.
            video: what they were made for.
            source: what to call that in the files; by default {"video": its path}.
            about: keys of the JSON besides the forecasts (every_ms, model, …).
            progress: called with the frames of the overlay done and in all; it takes longest and is written last.
            gaps: where nothing could be forecast. part: of the video to draw, in ms.
        """
        source = source or {"video": str(video)}
        write_timeline(self.json, timeline, {**source, **about}, gaps)
        if self.osl is not None:
            write_timeline_osl(self.osl, timeline, next(iter(source.values())))
        if self.csv is not None:
            write_timeline_csv(self.csv, timeline)
        if self.overlay is not None:
            note = str(about.get("origin", ""))
            write_overlay(
                video,
                self.overlay,
                timeline,
                gaps,
                note=note and f"model {note}",
                begin_ms=part[0],
                end_ms=part[1],
                progress=progress,
            )


def write_timeline(
    path: Path, timeline: Sequence[Forecast], about: Mapping[str, Any], gaps: Sequence[Gap] = ()
) -> None:
    """Write one record per forecast, also those without predictions; `about` (every_ms, model, …) comes first.

    gaps: where nothing could be forecast, in seconds.
    """
    records = {"gaps": [gap.to_json() for gap in gaps], "anticipations": [forecast.to_json() for forecast in timeline]}
    write_json(path, {**about, **records}, indent=1)


def write_timeline_osl(path: Path, timeline: Sequence[Forecast], video: str) -> None:
    """Write one event per prediction, in order of time.

    OSL JSON has no key for the time of the forecast: an action predicted by five forecasts is five events.
    """
    events = sorted((p for forecast in timeline for p in forecast.predictions), key=lambda p: p.position_ms)
    write_osl(path, {video: events}, "timeline", description=f"anticipations along {video}")


def write_timeline_csv(path: Path, timeline: Sequence[Forecast]) -> None:
    """Write one row per prediction; the columns are those of `Forecasts.to_frame`."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(row for forecast in timeline for row in prediction_rows(forecast))
    write_bytes(path, text.getvalue().encode())

"""What was anticipated along a video, as files: our JSON, OSL JSON, CSV and the video with an overlay.

Times are milliseconds of the video. Confidences and scores are honest chances, not the network's own p_obj · p_cls,
which its loss inflates; see `ballcast.model.slot_arrays.SlotArrays.honest`. The JSON gives the `pos_weight` that was
undone.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast
from ballcast.core.files import check_not_source, check_writable, write_bytes, write_json
from ballcast.data.labels.osl import write_osl
from ballcast.video.overlay import check_overlay, write_overlay

CSV_COLUMNS = ("at_ms", "label", "position_ms", "confidence")


@dataclass(frozen=True)
class Targets:
    """The files to write of a timeline; None: not this one."""

    json: Path
    osl: Path | None = None
    csv: Path | None = None
    overlay: Path | None = None

    def check(self, video: Path) -> None:
        """An InputError if one cannot be written: said before the work, not after it. `video`: what is read."""
        seen = set()
        for target in (self.json, self.osl, self.csv, self.overlay):
            if target is None:
                continue
            check_writable(target)
            if target.is_dir():
                raise InputError(f"{target}: is a folder; give the file to write")
            check_not_source(target, video)
            if target.resolve() in seen:
                raise InputError(f"{target}: is asked for twice; give each output a file of its own")
            seen.add(target.resolve())
        if self.overlay is not None:
            check_overlay(video, self.overlay)

    def write(
        self,
        timeline: Sequence[Forecast],
        video: Path,
        about: Mapping[str, Any],
        progress: Callable[[int, int | None], None] = lambda done, total: None,
    ) -> None:
        """All of them, the overlay, which takes longest and tells its `progress`, last; each is whole or not there."""
        write_timeline(self.json, timeline, {"video": str(video), **about})
        if self.osl is not None:
            write_timeline_osl(self.osl, timeline, str(video))
        if self.csv is not None:
            write_timeline_csv(self.csv, timeline)
        if self.overlay is not None:
            write_overlay(video, self.overlay, timeline, progress=progress)


def write_timeline(path: Path, timeline: Sequence[Forecast], about: Mapping[str, Any]) -> None:
    """One record a moment, also where nothing is expected; `about` (every_ms, model, …) comes first."""
    anticipations = [made.to_json() for made in timeline]
    write_json(path, {**about, "anticipations": anticipations}, indent=1)


def write_timeline_osl(path: Path, timeline: Sequence[Forecast], video: str) -> None:
    """One event a prediction, in order of time.

    OSL JSON has no place for when a prediction was made: an action that is seen coming at five moments is five events.
    """
    events = sorted((p for made in timeline for p in made.predictions), key=lambda p: p.position_ms)
    write_osl(path, {video: events}, "timeline", description=f"anticipations along {video}")


def write_timeline_csv(path: Path, timeline: Sequence[Forecast]) -> None:
    """One row a prediction: when it was made, the action, for when, and how sure."""
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(CSV_COLUMNS)
    rows.writerows((made.at_ms, p.label, p.position_ms, p.confidence) for made in timeline for p in made.predictions)
    write_bytes(path, text.getvalue().encode())

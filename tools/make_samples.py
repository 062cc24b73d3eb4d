"""Make the labels embedded in the package, from the simulated matches beside the checkout.

    python tools/make_samples.py ../shared/data/simbaa

Clips of 30 s, one every 5 s, as SN-BAA cuts its games; see NOTICE for the source and its licence.
"""

import json
import sys
from pathlib import Path

from ballcast.core.actions import END_MS, OBSERVED_MS
from ballcast.core.clips import Clip, Event
from ballcast.data.soccernet import LABELS, write_labels
from ballcast.data.stitch import STEP_MS

SAMPLES = Path(__file__).parents[1] / "src" / "ballcast" / "samples"


def cut(actions: list[dict[str, str]], start_ms: int, name: str) -> Clip:
    """The clip that starts at `start_ms` of a match."""
    moved = [
        Event(a["label"], int(a["position"]) - start_ms, a["team"], a["visibility"] == "visible")
        for a in actions
        if start_ms <= int(a["position"]) < start_ms + END_MS
    ]
    observed = tuple(e for e in moved if e.position_ms < OBSERVED_MS)
    return Clip(name, observed, tuple(e for e in moved if e.position_ms >= OBSERVED_MS))


def main() -> None:
    matches = json.loads((Path(sys.argv[1]) / "matches.json").read_text())
    for split in ("train", "test"):
        clips: list[Clip] = []
        for match in (m for m in matches if m["split"] == split):
            last = match["frames"] * 40 - END_MS
            for start_ms in range(0, last + 1, STEP_MS):
                clips.append(cut(match["actions"], start_ms, f"clip_{len(clips) + 1}"))
        write_labels(SAMPLES / split / LABELS, clips, date="2026.11.15")


if __name__ == "__main__":
    main()

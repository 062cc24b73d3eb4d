"""Anticipation along a match's event feed: every so often, from what had happened by then, what comes next.

Each moment sees only what a live feed would have told by then (`data/event_grid.py`), so a feed that is cut off at any
time gives the same anticipations up to there.
"""

from dataclasses import replace

import numpy as np
import torch

from ballcast.core.actions import OBSERVED_MS
from ballcast.core.errors import InputError
from ballcast.core.recipe import EmitConfig
from ballcast.core.timeline import Anticipation, Timeline
from ballcast.data.event_grid import STEPS, WIDTH, observe
from ballcast.data.event_windows import IDENTITY
from ballcast.data.feed import Feed
from ballcast.inference.rolling import pos_weight
from ballcast.model.anticipator import Anticipator
from ballcast.model.emit import emit

BATCH = 512


def check_reads_events(model: Anticipator, source: str) -> None:
    """An InputError unless the model (of `source`) was trained on event feeds, on the grid of this version."""
    trained_on = model.metadata.get("backbone", {})
    if (model.config.clips, model.config.width) != (STEPS, WIDTH) or trained_on.get("hash") != IDENTITY.hash:
        raise InputError(
            f"{source}: was trained on {trained_on.get('name', 'something else')}, not on event feeds as this version "
            f"reads them ({IDENTITY.name}); give a model trained on a store made by `ballcast events`"
        )


@torch.inference_mode()
def anticipate_feed(
    model: Anticipator, feed: Feed, *, every_ms: int, config: EmitConfig, device: torch.device
) -> tuple[Timeline, dict[str, int]]:
    """Everything anticipated along a match, and where each period begins on the timeline's clock, in ms.

    Periods follow each other without the break. In each, the first anticipation is made after 30 s, as in training, and
    the last before its last event. Confidences are honest chances (`Slots.honest`).
    """
    model = model.to(device).eval()
    inflation = pos_weight(model)
    made: list[Anticipation] = []
    begins: dict[str, int] = {}
    clock = 0
    for name, half in feed.halves():
        begins[name] = clock
        at_ms = np.arange(OBSERVED_MS, half.t_ms.max(), every_ms)
        for some in np.split(at_ms, range(BATCH, len(at_ms), BATCH)):
            if not len(some):
                continue
            slots = model(torch.from_numpy(observe(half, some)).to(device).float())
            for T, predictions in zip(some.tolist(), emit(slots, config, pos_weight=inflation), strict=True):
                shift = clock + T - OBSERVED_MS
                moved = (replace(p, position_ms=p.position_ms + shift) for p in predictions)
                made.append(Anticipation(clock + T, tuple(moved)))
        clock += int(half.t_ms.max())
    if not made:
        raise InputError(f"match {feed.match}: no period is longer than 30 s")
    return tuple(made), begins

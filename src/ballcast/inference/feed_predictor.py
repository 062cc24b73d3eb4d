"""Forecasts along a match's event feed, at regular intervals.

Each forecast uses only events that a live feed would have delivered by then (`data/events/event_grid.py`), so a
truncated feed gives the same forecasts up to its end.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from ballcast.core.actions import OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Timeline
from ballcast.data.events.event_grid import STEPS, WIDTHS, Detail, observe
from ballcast.data.events.event_windows import IDENTITIES
from ballcast.data.events.feed import Feed
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit

BATCH = 512


def check_reads_events(model: Anticipator, source: str) -> None:
    """Raise an InputError unless the model (loaded from `source`) was trained on this version's event grid."""
    if detail_of(model) is None:
        trained_on = model.metadata.get("backbone", {}).get("name", "something else")
        known = " or ".join(identity.name for identity in IDENTITIES.values())
        raise InputError(
            f"{source}: was trained on {trained_on}, not on event feeds as this version reads them ({known}); "
            "give a model trained on a store made by `ballcast events`"
        )


def detail_of(model: Anticipator) -> Detail | None:
    """The detail of the feeds the model was trained on; None: not trained on feeds of this version."""
    read = (model.config.clips, model.config.width, model.metadata.get("backbone", {}).get("hash"))
    grids = ((detail, (STEPS, WIDTHS[detail], identity.hash)) for detail, identity in IDENTITIES.items())
    return next((detail for detail, grid in grids if grid == read), None)


@torch.inference_mode()
def anticipate_feed(
    model: Anticipator,
    feed: Feed,
    *,
    every_ms: int,
    config: EmitConfig,
    device: torch.device,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Timeline, dict[str, int]]:
    """Forecast along a whole match.

    Periods follow each other without a break. In each, the first forecast is made after 30 s, as in training, and the
    last before its last event.

    Args:
        model: trained on event feeds (`check_reads_events`).
        feed: the match.
        every_ms: interval of the forecasts.
        config: how slots become predictions.
        device: where to compute.
        progress: called with the forecasts done and in all.

    Returns:
        The forecasts, with confidences as probabilities (`SlotArrays.undo_pos_weight`), and the begin of each period
        on the timeline's clock, in ms.
    """
    model = model.to(device).eval()
    inflation, detail = model.pos_weight, detail_of(model)
    assert detail is not None, "see check_reads_events"
    made: list[Forecast] = []
    begins: dict[str, int] = {}
    clock = 0
    times = {name: np.arange(OBSERVED_MS, half.t_ms.max(), every_ms) for name, half in feed.halves()}
    total = sum(map(len, times.values()))
    for name, half in feed.halves():
        begins[name] = clock
        at_ms = times[name]
        for some in np.split(at_ms, range(BATCH, len(at_ms), BATCH)):
            if not len(some):
                continue
            slots = model(torch.from_numpy(observe(half, some, detail=detail)).to(device).float())
            for T, predictions in zip(some.tolist(), emit(slots, config.shown, pos_weight=inflation), strict=True):
                shift = clock + T - OBSERVED_MS
                moved = (replace(p, position_ms=p.position_ms + shift) for p in predictions)
                made.append(Forecast(clock + T, tuple(moved)))
            progress(len(made), total)
        clock += int(half.t_ms.max())
    if not made:
        raise InputError(f"match {feed.match}: no period is longer than 30 s")
    return tuple(made), begins

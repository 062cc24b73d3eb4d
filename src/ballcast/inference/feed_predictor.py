"""Forecasts along a match's event feed, at regular intervals.

Each forecast uses only events that a live feed would have delivered by then (`data/events/event_grid.py`), so a
truncated feed gives the same forecasts up to its end.
"""

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from ballcast.core.actions import OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError
from ballcast.core.events import Forecast
from ballcast.data.events.event_grid import STEPS, WIDTHS, Detail, observe
from ballcast.data.events.event_windows import IDENTITIES
from ballcast.data.events.feed import Feed
from ballcast.inference.runtime import TrainedModel, WindowModel
from ballcast.model.postprocess import emit

BATCH = 512


def check_reads_events(model: TrainedModel, source: str) -> None:
    """Raise an InputError unless the model (loaded from `source`) was trained on this version's event grid."""
    if detail_of(model) is None:
        trained_on = model.metadata.get("backbone", {}).get("name", "something else")
        known = " or ".join(identity.name for identity in IDENTITIES.values())
        raise InputError(
            f"{source}: was trained on {trained_on}, not on event feeds as this version reads them ({known}); "
            "give a model trained on a store made by `ballcast events`"
        )


def detail_of(model: TrainedModel) -> Detail | None:
    """The detail of the feeds the model was trained on; None: not trained on feeds of this version."""
    read = (model.config.clips, model.config.width, model.metadata.get("backbone", {}).get("hash"))
    grids = ((detail, (STEPS, WIDTHS[detail], identity.hash)) for detail, identity in IDENTITIES.items())
    return next((detail for detail, grid in grids if grid == read), None)


def period_begins(feed: Feed) -> dict[str, int]:
    """The begin of each period on the forecasts' clock, in ms: periods follow each other without a break."""
    begins, clock = {}, 0
    for name, half in feed.halves():
        begins[name] = clock
        clock += int(half.t_ms.max())
    return begins


def forecast_feed(
    model: WindowModel,
    feed: Feed,
    *,
    every_ms: int,
    config: EmitConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Generator[Forecast, None, None]:
    """Forecast along a whole match.

    In each period the first forecast is made after 30 s, as in training, and the last before its last event.

    Args:
        model: trained on event feeds (`check_reads_events`).
        feed: the match.
        every_ms: interval of the forecasts.
        config: how slots become predictions.
        progress: called with the forecasts done and in all.

    Yields:
        The forecasts on one clock (`period_begins`), with confidences as probabilities
        (`SlotArrays.undo_pos_weight`).
    """
    detail = detail_of(model)
    assert detail is not None, "see check_reads_events"
    begins = period_begins(feed)
    times = {name: np.arange(OBSERVED_MS, half.t_ms.max(), every_ms) for name, half in feed.halves()}
    done, total = 0, sum(map(len, times.values()))
    if not total:
        raise InputError(f"match {feed.match}: no period is longer than 30 s")
    for name, half in feed.halves():
        for begin in range(0, len(times[name]), BATCH):
            some = times[name][begin : begin + BATCH]
            slots = model.slots(observe(half, some, detail=detail).astype(np.float32))
            emitted = emit(slots, config.shown, pos_weight=model.pos_weight)
            for T, predictions in zip(some.tolist(), emitted, strict=True):
                at_ms = begins[name] + T
                moved = (replace(p, position_ms=p.position_ms + at_ms - OBSERVED_MS) for p in predictions)
                yield Forecast(at_ms, tuple(moved))
            done += len(some)
            progress(done, total)

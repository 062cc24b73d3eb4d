"""Forecasts along a match's event feed, at regular intervals.

Each forecast uses only events that a live feed would have delivered by then (`data/events/event_grid.py`,
`data/events/event_tokens.py`), so a truncated feed gives the same forecasts up to its end. `predict_feed` runs a model
of event grids, `predict_events` the event transformer.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, OBSERVED_MS, SHORT_NAMES
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError
from ballcast.core.event_schema import ACTION, PAD
from ballcast.core.events import Forecast, Prediction
from ballcast.core.feed_forecast import SHOT, FeedForecast, MatchSummary, Shot
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.data.events.event_grid import IDENTITIES, STEPS, WIDTHS, Detail, build_grid
from ballcast.data.events.event_tokens import EARLIEST_MS, EventTable, build_table, detail_flags, hide, tokens_before
from ballcast.data.events.feed import PERIODS, Feed
from ballcast.inference.event_model import EventModel, batches_by_length
from ballcast.inference.runtime import Runtime, TrainedModel
from ballcast.model.postprocess import POSITIONS_MS, emit, select_times

BATCH = 512
TOKENS_BATCH = 64  # of the event transformer: what fits a core's cache takes half the time of 512
REACHES_MS = [EmitConfig().reach_ms] * len(ACTIONS)


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
    begins = {}
    clock = 0
    for name, half in feed.periods():
        begins[name] = clock
        clock += int(half.t_ms.max())
    return begins


def predict_feed(
    model: Runtime,
    feed: Feed,
    *,
    every_ms: int,
    config: EmitConfig,
    progress: ProgressCallback = no_progress,
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
    times = {name: np.arange(OBSERVED_MS, half.t_ms.max(), every_ms) for name, half in feed.periods()}
    done = 0
    total = sum(map(len, times.values()))
    if not total:
        raise InputError(f"match {feed.match}: no period is longer than 30 s")
    for name, half in feed.periods():
        for begin in range(0, len(times[name]), BATCH):
            some = times[name][begin : begin + BATCH]
            slots = model.predict_windows(build_grid(half, some, detail=detail).astype(np.float32))
            emitted = emit(slots, config.shown, pos_weight=model.pos_weight)
            for T, predictions in zip(some.tolist(), emitted, strict=True):
                at_ms = begins[name] + T
                moved = (replace(p, position_ms=p.position_ms + at_ms - OBSERVED_MS) for p in predictions)
                yield Forecast(at_ms, tuple(moved))
            done += len(some)
            progress(done, total)


EMIT_THRESHOLD = 0.1  # the least probability of a prediction in `FeedForecast.predictions`


def summarise(feed: Feed, provider: str, missing: tuple[str, ...]) -> MatchSummary:
    """What is known of a match besides its forecasts; `missing`: what the feed lacks."""
    begins = period_begins(feed)
    chosen = np.flatnonzero((feed.action == SHOT) | (feed.goal != 0))
    clock = [begins[PERIODS[feed.period[i]]] + int(feed.t_ms[i]) for i in chosen]
    shots = (Shot(at, int(feed.team[i]), int(feed.goal[i])) for at, i in zip(clock, chosen, strict=True))
    return MatchSummary(feed.match, provider, feed.teams, begins, tuple(shots), feed.counts(), missing)


def predict_events(
    model: EventModel,
    feed: Feed,
    *,
    missing: Sequence[str] = (),
    every_ms: int = 1000,
    progress: ProgressCallback = no_progress,
) -> Generator[FeedForecast, None, None]:
    """Forecast along a whole match at regular intervals and at every event.

    Args:
        model: an event transformer.
        feed: the match.
        missing: what the feed lacks, by the names of `event_schema.DETAILS`.
        every_ms: interval of the forecasts between events, from 5 s of each period to its last event.
        progress: called with the forecasts done and in all.

    Yields:
        The forecasts in order of time, on one clock (`period_begins`). A forecast at an event knows that the event has
        begun, and not how it ends.
    """
    begins, flags = period_begins(feed), detail_flags(missing)
    times = {name: _times(half, every_ms) for name, half in feed.periods()}
    done = 0
    total = sum(len(at_ms) for at_ms, _ in times.values())
    if not total:
        raise InputError(f"match {feed.match}: no period is longer than 5 s")
    for name, half in feed.periods():
        at_ms, event = times[name]
        if not len(at_ms):  # a period of a few seconds, as of an excerpt
            continue
        distinct, which = np.unique(at_ms, return_inverse=True)  # simultaneous events share a forecast
        chance, zones, found, last = (part[which] for part in _run(model, build_table([half]), distinct, flags))
        for i, T in enumerate(at_ms.tolist()):
            at = begins[name] + T
            label = (*SHORT_NAMES, "other")[half.action[event[i]]] if event[i] >= 0 else ""
            yield FeedForecast(at, likely_predictions(found[i], at), name, T, label, int(last[i]), chance[i], zones[i])
        done += len(at_ms)
        progress(done, total)


def _run(
    model: EventModel, table: EventTable, at_ms: NDArray[np.int64], flags: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Run the model at S times of a period.

    Padding is left out (`batches_by_length`): most of 30 s have less than half the tokens.

    Returns:
        Chance (S, 3, C, 5) by teams 0 and 1 and by either, zones (S, 12, 8), likely times (S, 32, C), and the team of
        the last event (S,), whose view the zones have.
    """
    available = np.broadcast_to(flags, (len(at_ms), len(flags)))
    tokens = tokens_before(np, table, at_ms, tokens=model.tokens, observed_ms=model.observed_ms)
    codes, values = hide(np, *tokens, available)
    parts = []
    batches, back = batches_by_length(codes[..., ACTION] == PAD, TOKENS_BATCH)
    for some, kept in batches:
        outputs = model.run(codes[some, -kept:], values[some, -kept:], available[some])
        likely = select_times(outputs.intensity.sum(1).transpose(1, 0, 2).copy(), REACHES_MS, count=2)
        parts.append((outputs.chance, outputs.zones, likely))
    chance, zones, found = (np.concatenate(column)[back] for column in zip(*parts, strict=True))
    last = table.team[np.maximum(np.searchsorted(table.clock, at_ms) - 1, 0)]
    by_number = np.where(last[:, None, None, None] == 0, chance, chance[:, [1, 0, 2]])
    return by_number, zones, found, last


def _times(half: Feed, every_ms: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The times of a period's forecasts in ms, in order (S,), and the event that each is made at (S,), −1: none.

    At an event means 1 ms after its time, when it is known to have begun.
    """
    regular = np.arange(EARLIEST_MS, half.t_ms.max() + 1, every_ms)
    events = np.flatnonzero(half.t_ms >= EARLIEST_MS)
    at_ms = np.concatenate([regular, half.t_ms[events] + 1])
    event = np.concatenate([np.full(len(regular), -1), events])
    order = np.lexsort((event, at_ms))
    return at_ms[order], event[order]


def likely_predictions(found: NDArray[np.float32], at_ms: int) -> tuple[Prediction, ...]:
    """The likely times of each action (32, C), as predictions on the forecasts' clock, in order of time."""
    bins, classes = np.nonzero(found >= EMIT_THRESHOLD)
    shift = at_ms - OBSERVED_MS
    return tuple(
        Prediction(ACTIONS[c], int(POSITIONS_MS[b]) + shift, float(found[b, c]))
        for b, c in zip(bins.tolist(), classes.tolist(), strict=True)
    )

"""Predictions for the clips of a feature store, by one model or by several together. No torch here."""

import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ballcast.core import hub
from ballcast.core.actions import OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.backbone_config import BackboneIdentity, trained_size
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import GRID_BINS, Clip, ClipForecast, Prediction, grid_bin, merge_arrays
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.core.util import natural
from ballcast.data.events.event_grid import read_store
from ballcast.data.samples.windows import ABSENT, WindowSet, official_windows
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore, read_rows
from ballcast.inference.runtime import Runtime, TrainedModel
from ballcast.model.postprocess import Floats, SlotArrays, SlotLike, SlotProbabilities, emit, emit_flat
from ballcast.model.score_mapping import Emission, ScoreMapping, weights_hash
from ballcast.video.luma import other_size

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone

BATCH = 128  # samples at a time


def check_fits(model: TrainedModel, store: FeatureStore, source: Path | str) -> None:
    """Raise an InputError unless the store's features are of the backbone that the model was trained on.

    Warns if they were extracted at another frame size.

    Args:
        model: loaded from `source`, which messages name.
        store: the features.
    """
    grid = (store.snippets, store.width)
    backbone = store.manifest.header.backbone
    _check(model, str(source), grid, backbone, f"{store.path}: was made by", "extract with")
    if difference := other_size(store.manifest.picture_size, trained_size(model.metadata)):
        warnings.warn(f"{store.path}: {difference}; extract again with that --size", BallcastWarning, stacklevel=2)


def check_backbone(model: TrainedModel, backbone: "Backbone", source: Path | str, place: Path | str) -> None:
    """Raise an InputError unless the backbone (of `place`) is the one the model (of `source`) was trained on."""
    grid = (snippet_count(backbone.config), backbone.config.width)
    _check(model, str(source), grid, backbone.identity, f"{place}: is", "give")


def _check(
    model: TrainedModel, source: str, grid: tuple[int, int], backbone: BackboneIdentity, given: str, fix: str
) -> None:
    trained_on = model.metadata.get("backbone", {})
    name = f"{given} the backbone {backbone.name} ({backbone.hash[:12]})"
    if grid != (model.config.clips, model.config.width):
        raise InputError(
            f"{name}, with windows of {grid[0]} snippets × {grid[1]} features, but the model {source} reads "
            f"{model.config.clips} × {model.config.width}; {fix} the backbone it was trained on"
        )
    if trained_on.get("hash") not in (None, backbone.hash):
        raise InputError(
            f"{name}, but the model {source} was trained on {trained_on.get('name')} ({trained_on['hash'][:12]}); "
            f"{fix} that one"
        )


def check_ensemble(models: Sequence[TrainedModel], sources: Sequence[str], stores: Sequence[FeatureStore]) -> None:
    """Raise an InputError unless each model reads its store's features and all can be averaged.

    Args:
        models: loaded from `sources`, which messages name.
        stores: one for all models, or one for each.
    """
    for model, source, store in zip(models, sources, store_of_each(sources, stores), strict=True):
        check_fits(model, store, source)
        if model.pos_weight != models[0].pos_weight:  # it is undone for all models at once
            raise InputError(
                f"{source}: was trained with loss.pos_weight {model.pos_weight:g}, {sources[0]} "
                f"with {models[0].pos_weight:g}; average models that agree in it"
            )


def store_of_each(sources: Sequence[str], stores: Sequence[FeatureStore]) -> list[FeatureStore]:
    """The store of each model: the only one, or its own, in order."""
    if len(stores) == 1:
        return [stores[0]] * len(sources)
    if len(stores) != len(sources):
        raise InputError(
            f"{len(stores)} feature stores, but models: {len(sources)}; give one --features for all models, or one for "
            "each, in order"
        )
    return list(stores)


def open_ensemble(
    models: Sequence[TrainedModel], stores: Sequence[FeatureStore], clips: Sequence[Clip], *, selected: bool = False
) -> list[WindowSet]:
    """The samples of each model, from its store; the same clips for all, or an InputError.

    Args:
        models, stores: as in `check_ensemble`.
        clips: as in `open_windows`.
        selected: `clips` are a choice, so stores may hold others too; if not, all stores must hold the same.
    """
    made: dict[tuple[Path, int], WindowSet] = {}
    each = store_of_each([""] * len(models), stores)
    for store in stores[1:]:
        if not selected:
            _require_same_clips(store, store.names, stores[0], stores[0].names)
    for model, store in zip(models, each, strict=True):
        key = (store.path, model.config.windows)
        if key not in made:
            made[key] = open_windows(store, clips, model.config.windows)
            first = next(iter(made.values()))
            _require_same_clips(store, made[key].names, stores[0], first.names)
    return [made[store.path, model.config.windows] for model, store in zip(models, each, strict=True)]


def _require_same_clips(
    store: FeatureStore, names: Sequence[str], first: FeatureStore, expected: Sequence[str]
) -> None:
    missing = sorted(set(expected) - set(names), key=natural) or sorted(set(names) - set(expected), key=natural)
    if missing:
        raise InputError(
            f"{store.path}: {len(names)} clips, and {first.path} has {len(expected)}; {missing[0]} is in one of them "
            "only: extract the same clips for every model, or choose those in both with --labels"
        )


def open_windows(store: FeatureStore, clips: Sequence[Clip], windows: int) -> WindowSet:
    """The samples of a store: `clips`, or all windows of a store made from event feeds.

    Args:
        store: the features; must be finite.
        clips: names and labels of the samples.
        windows: W, the number of windows the model reads.
    """
    store.check_finite()
    if store.is_event_grid:
        return read_store(store).windows
    return official_windows([(store, clips)], windows)


def slots_of_windows(
    model: Runtime, windows: WindowSet, progress: ProgressCallback = no_progress
) -> Iterator[SlotArrays]:
    """Yield the slots of all samples in order, `BATCH` samples at a time."""
    for begin in range(0, len(windows), BATCH):
        index = windows.index[begin : begin + BATCH]  # (B, W)
        features = read_rows(windows.rows, index.clip(0).reshape(-1))
        yield model.predict_windows(features.reshape(*index.shape, *features.shape[1:]), index != ABSENT)
        progress(min(begin + BATCH, len(windows)), len(windows))


def predict_clips(
    model: Runtime, windows: WindowSet, config: EmitConfig, progress: ProgressCallback = no_progress
) -> Generator[ClipForecast, None, None]:
    """Yield what the model emits for each sample, with its own scores; predictions of one bin are not merged."""
    names = iter(windows.names)
    for slots in slots_of_windows(model, windows, progress):
        for predictions in emit(slots, config):
            yield ClipForecast(OBSERVED_MS, tuple(predictions), next(names))


def predict_together(
    models: Sequence[Runtime],
    windows: Sequence[WindowSet],
    mapping: ScoreMapping,
    progress: ProgressCallback = no_progress,
) -> Generator[ClipForecast, None, None]:
    """Yield the predictions of an ensemble, or of a tuned model, for each sample: one per bin.

    Args:
        models: the ensemble.
        windows: of each model, the same samples in order.
        mapping: of their scores.
        progress: called with the samples done and in all.
    """
    parts = [slots_of_windows(model, samples, progress) for model, samples in zip(models, windows, strict=True)]
    names = iter(windows[0].names)
    for outputs in zip(*parts, strict=True):
        emitted = emission(outputs[0], models[0].emit) if mapping.times == "emitted" and len(models) == 1 else None
        for predictions in mapping.predict([SlotProbabilities.from_slots(slots) for slots in outputs], emitted):
            yield ClipForecast(OBSERVED_MS, tuple(predictions), next(names))


def grid_scores(slots: SlotLike, config: EmitConfig) -> Floats:
    """The emitted scores of n samples in the scorer's bins, (n, 32, C)."""
    clip, position_ms, vectors = merge_arrays(*emit_flat(slots, config))
    scores = np.zeros((len(slots.arrays()), GRID_BINS, vectors.shape[-1]), np.float32)
    scores[clip, grid_bin(position_ms)] = vectors
    return scores


def emission(slots: SlotLike, config: EmitConfig) -> Emission:
    """What a model emits with and without its threshold, in the scorer's bins; times are kept within the horizon."""
    given = slots.arrays()
    if given.form == "fraction":
        given = replace(given, offsets=given.offsets.clip(0, 1))
    return Emission(grid_scores(slots, config), grid_scores(given, replace(config, threshold=0.0)))


def untuned(models: Sequence[TrainedModel]) -> ScoreMapping:
    """The score mapping of models that were not tuned together: only the loss's `pos_weight` is undone."""
    return ScoreMapping.untuned(models[0].pos_weight)


def hashes(sources: Sequence[str]) -> tuple[str, ...]:
    """The hashes of the models' weights (folders or hub ids), as `ScoreMapping.weights` holds them."""
    weights = "model.safetensors"
    return tuple(weights_hash(hub.locate(source, ("config.json", weights)) / weights) for source in sources)


def by_clip(forecasts: Iterable[ClipForecast]) -> dict[str, tuple[Prediction, ...]]:
    """Predictions by clip, in their order, as a submission has them."""
    return {forecast.clip: forecast.predictions for forecast in forecasts}

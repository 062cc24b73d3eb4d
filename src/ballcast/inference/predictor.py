"""Predictions from feature stores, by one model or by an ensemble."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ballcast.core import hub
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.backbone_config import BackboneIdentity, trained_size
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import GRID_BINS, Clip, Prediction, grid_bin, merge_arrays
from ballcast.core.util import natural
from ballcast.data.events.event_windows import read_store
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet, official_windows
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore
from ballcast.inference.tuning import TuningResult
from ballcast.model.anticipator import CONFIG, WEIGHTS, Anticipator
from ballcast.model.postprocess import Floats, SlotLike, SlotProbabilities, emit, emit_flat
from ballcast.model.score_mapping import Emission, ScoreMapping, weights_hash
from ballcast.model.slots import Slots
from ballcast.video.luma import other_size


def check_fits(model: Anticipator, store: FeatureStore, source: Path | str) -> None:
    """Raise an InputError unless the store's features are of the backbone that the model was trained on.

    Warns if they were extracted at another frame size.

    Args:
        model: loaded from `source`, which messages name.
        store: the features.
    """
    grid, backbone = (store.clips, store.width), store.manifest.header.backbone
    _check(model, str(source), grid, backbone, f"{store.path}: was made by", "extract with")
    if difference := other_size(store.manifest.picture_size, trained_size(model.metadata)):
        warnings.warn(f"{store.path}: {difference}; extract again with that --size", BallcastWarning, stacklevel=2)


def check_backbone(model: Anticipator, backbone: Backbone, source: Path | str, place: Path | str) -> None:
    """Raise an InputError unless the backbone (of `place`) is the one the model (of `source`) was trained on."""
    grid = (snippet_count(backbone.config), backbone.config.width)
    _check(model, str(source), grid, backbone.identity, f"{place}: is", "give")


def _check(
    model: Anticipator, source: str, grid: tuple[int, int], backbone: BackboneIdentity, given: str, fix: str
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


@torch.inference_mode()
def predict_store(
    model: Anticipator,
    store: FeatureStore,
    clips: Sequence[Clip],
    config: EmitConfig,
    device: torch.device,
    *,
    pos_weight: float = 1.0,
) -> dict[str, list[Prediction]]:
    """Predict all clips of a store with one model.

    Args:
        model: moved to `device` and put in eval mode.
        store, clips: as in `open_windows`.
        config: how slots become predictions.
        device: where to compute.
        pos_weight: of the loss, to make confidences probabilities; see `emit_arrays`.

    Returns:
        Predictions by clip (or window of an event store), in their order; those of one bin are not merged.
    """
    samples = Samples(open_windows(store, clips, model.config.windows), device, "auto")
    model = model.to(device).eval()
    emitted = [sample for slots in samples.run(model) for sample in emit(slots, config, pos_weight=pos_weight)]
    return dict(zip(samples.windows.names, emitted, strict=True))


def load_models(sources: Sequence[str], stores: Sequence[FeatureStore]) -> list[Anticipator]:
    """Load an ensemble from folders or hub ids; an InputError unless each model fits its store and all agree.

    Args:
        sources: of the models.
        stores: one for all models, or one for each.
    """
    models = [Anticipator.from_pretrained(source) for source in sources]
    for model, source, store in zip(models, sources, store_of_each(sources, stores), strict=True):
        check_fits(model, store, source)
        if model.pos_weight != models[0].pos_weight:  # it is undone for all models at once
            raise InputError(
                f"{source}: was trained with loss.pos_weight {model.pos_weight:g}, {sources[0]} "
                f"with {models[0].pos_weight:g}; average models that agree in it"
            )
    return models


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
    models: Sequence[Anticipator], stores: Sequence[FeatureStore], clips: Sequence[Clip], *, selected: bool = False
) -> list[WindowSet]:
    """The samples of each model, from its store; the same clips for all, or an InputError.

    Args:
        models, stores: of `load_models`.
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


def hashes(sources: Sequence[str]) -> tuple[str, ...]:
    """The hashes of the models' weights, as `ScoreMapping.weights` holds them."""
    return tuple(weights_hash(hub.locate(source, (CONFIG, WEIGHTS)) / WEIGHTS) for source in sources)


@torch.inference_mode()
def run_models(
    models: Sequence[Anticipator], windows: Sequence[WindowSet], device: torch.device
) -> list[SlotProbabilities]:
    """The outputs of each model for every sample of its own windows, in order."""
    outputs, samples = [], None
    for model, own in zip(models, windows, strict=True):
        if samples is None or samples.windows is not own:
            samples = Samples(own, device, "auto")
        parts = [SlotProbabilities.of(slots) for slots in samples.run(model.to(device).eval())]
        outputs.append(SlotProbabilities.join(parts))
        model.cpu()  # many models need not fit on the device at once
    return outputs


def scores_untuned(
    models: Sequence[Anticipator], outputs: Sequence[SlotProbabilities], emitted: Emission | None
) -> Floats:
    """The scores of a submission without tuning, (n, 32, C) in the scorer's bins; 0 where nothing is predicted.

    Args:
        models, outputs: of `run_models`.
        emitted: of `run_emission`.
    """
    return emitted.kept if emitted else untuned(models).scores(outputs)


def grid_scores(slots: SlotLike, config: EmitConfig) -> Floats:
    """The emitted scores of n samples in the scorer's bins, (n, 32, C)."""
    clip, position_ms, vectors = merge_arrays(*emit_flat(slots, config))
    scores = np.zeros((len(slots.arrays().objectness), GRID_BINS, vectors.shape[-1]), np.float32)
    scores[clip, grid_bin(position_ms)] = vectors
    return scores


def emission(slots: Slots, config: EmitConfig) -> Emission:
    """What a model emits with and without its threshold, in the scorer's bins; times are kept within the horizon."""
    given = slots.arrays()
    if given.scalar:
        given = replace(given, offsets=given.offsets.clip(0, 1))
    return Emission(grid_scores(slots, config), grid_scores(given, replace(config, threshold=0.0)))


def run_emission(models: Sequence[Anticipator], windows: Sequence[WindowSet], device: torch.device) -> Emission | None:
    """What one model emits by its own settings for every sample in order; None for several."""
    if len(models) > 1:
        return None
    model = models[0].to(device).eval()
    with torch.inference_mode():
        parts = [emission(slots, model.emit) for slots in Samples(windows[0], device, "auto").run(model)]
    return Emission(*map(np.concatenate, zip(*parts, strict=True)))


def untuned(models: Sequence[Anticipator]) -> ScoreMapping:
    """The score mapping of models that were not tuned together: only the loss's `pos_weight` is undone."""
    return ScoreMapping.untuned(models[0].pos_weight)


def predict_together(
    models: Sequence[Anticipator], windows: Sequence[WindowSet], calibration: ScoreMapping, device: torch.device
) -> dict[str, list[Prediction]]:
    """Predict with an ensemble, each model from its own windows: predictions by sample name, in order, one per bin."""
    expected = calibration.times == "expected"
    predictions = (
        calibration.predict(run_models(models, windows, device))
        if expected
        else calibration.predict((), run_emission(models, windows, device))
    )
    return dict(zip(windows[0].names, predictions, strict=True))


def record_fit(
    fitted: TuningResult, sources: Sequence[str], stores: Sequence[FeatureStore], samples: int
) -> ScoreMapping:
    """Add weight hashes, store and figures to a fitted score mapping.

    Args:
        fitted: the result of tuning.
        sources: folders or hub ids of the models.
        stores: the features it was fitted on.
        samples: their number.
    """
    figures = {
        "samples": float(samples),
        "before": fitted.before.avg,
        "after": fitted.after.avg,
        "outside_before": fitted.outside_before,
        "outside_after": fitted.outside_after,
    }
    backbones = dict.fromkeys(store.manifest.header.backbone.name for store in stores)
    about = f"{stores[0].path.name}, features by {' and '.join(backbones)}"
    return replace(fitted.calibration, weights=hashes(sources), fitted_on=about, figures=figures)

"""Predictions from feature stores by models in torch, on any device; `store_predictor.py` needs no torch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.events import GRID_BINS, Clip, Prediction, grid_bin, merge_arrays
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import FeatureStore
from ballcast.inference.store_predictor import check_ensemble, hashes, open_windows, untuned
from ballcast.inference.tuning import TuningResult
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import Floats, SlotProbabilities, emit, emit_flat
from ballcast.model.score_mapping import ScoreMapping
from ballcast.model.slots import Slots


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


def load_models(sources: Sequence[str], store: FeatureStore) -> list[Anticipator]:
    """Load an ensemble from folders or hub ids; an InputError unless all models read the store's features and agree."""
    models = [Anticipator.from_pretrained(source) for source in sources]
    check_ensemble(models, sources, store)
    return models


@torch.inference_mode()
def run_models(models: Sequence[Anticipator], windows: WindowSet, device: torch.device) -> list[SlotProbabilities]:
    """The outputs of each model for every sample in order."""
    samples = Samples(windows, device, "auto")
    outputs = []
    for model in models:
        parts = [SlotProbabilities.of(slots) for slots in samples.run(model.to(device).eval())]
        outputs.append(SlotProbabilities.join(parts))
        model.cpu()  # many models need not fit on the device at once
    return outputs


def scores_untuned(models: Sequence[Anticipator], windows: WindowSet, device: torch.device) -> Floats:
    """The scores of a submission without tuning, (n, 32, C) in the scorer's bins; 0 where nothing is predicted."""
    if len(models) > 1:
        return untuned(models).scores(run_models(models, windows, device))
    model = models[0].to(device).eval()
    with torch.inference_mode():
        parts = [grid_scores(slots, model.emit) for slots in Samples(windows, device, "auto").run(model)]
    return np.concatenate(parts)


def grid_scores(slots: Slots, config: EmitConfig) -> Floats:
    """The emitted scores of n samples in the scorer's bins, (n, 32, C)."""
    clip, position_ms, vectors = merge_arrays(*emit_flat(slots, config))
    scores = np.zeros((len(slots.objectness), GRID_BINS, vectors.shape[-1]), np.float32)
    scores[clip, grid_bin(position_ms)] = vectors
    return scores


def record_fit(fitted: TuningResult, sources: Sequence[str], store: FeatureStore, samples: int) -> ScoreMapping:
    """Add weight hashes, store and figures to a fitted score mapping.

    Args:
        fitted: the result of tuning.
        sources: folders or hub ids of the models.
        store: the features it was fitted on.
        samples: their number.
    """
    figures = {
        "samples": float(samples),
        "before": fitted.before.avg,
        "after": fitted.after.avg,
        "outside_before": fitted.outside_before,
        "outside_after": fitted.outside_after,
    }
    about = f"{store.path.name}, features by {store.manifest.header.backbone.name}"
    return replace(fitted.calibration, weights=hashes(sources), fitted_on=about, figures=figures)

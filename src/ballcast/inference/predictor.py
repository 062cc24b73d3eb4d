"""Predictions from feature stores by models in torch, on any device; `store_predictor.py` needs no torch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet
from ballcast.features.store import FeatureStore
from ballcast.inference.store_predictor import check_ensemble, emission, hashes, untuned
from ballcast.inference.tuning import TuningResult
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import Floats, SlotProbabilities
from ballcast.model.score_mapping import Emission, ScoreMapping


def load_models(sources: Sequence[str], stores: Sequence[FeatureStore]) -> list[Anticipator]:
    """Load an ensemble from folders or hub ids; an InputError unless each model fits its store and all agree.

    Args:
        sources: of the models.
        stores: one for all models, or one for each.
    """
    models = [Anticipator.from_pretrained(source) for source in sources]
    check_ensemble(models, sources, stores)
    return models


@torch.inference_mode()
def run_models(
    models: Sequence[Anticipator], windows: Sequence[WindowSet], device: torch.device
) -> list[SlotProbabilities]:
    """The outputs of each model for every sample of its own windows, in order."""
    outputs, samples = [], None
    for model, own in zip(models, windows, strict=True):
        if samples is None or samples.windows is not own:
            samples = Samples(own, device, "auto")
        parts = [SlotProbabilities.from_slots(slots) for slots in samples.run(model.to(device).eval())]
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


def run_emission(models: Sequence[Anticipator], windows: Sequence[WindowSet], device: torch.device) -> Emission | None:
    """What one model emits by its own settings for every sample in order; None for several."""
    if len(models) > 1:
        return None
    model = models[0].to(device).eval()
    with torch.inference_mode():
        parts = [emission(slots, model.emit) for slots in Samples(windows[0], device, "auto").run(model)]
    return Emission(*map(np.concatenate, zip(*parts, strict=True)))


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

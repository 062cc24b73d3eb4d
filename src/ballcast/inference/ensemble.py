"""Several models read together: the mean of what each expects, class by class and bin by bin.

Models of other seeds have other slots, which do not correspond; what they expect together (`Chances.intensity`) can be
averaged all the same. One model is the simplest ensemble, and a calibration is applied to either in the same way.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ballcast.core import hub
from ballcast.core.clips import Prediction
from ballcast.core.errors import InputError
from ballcast.core.grid import GRID_BINS, grid_bin, merge_arrays
from ballcast.core.recipe import EmitConfig
from ballcast.data.batch import Samples
from ballcast.data.windows import WindowSet
from ballcast.features.store import FeatureStore
from ballcast.inference.predictor import check_fits
from ballcast.inference.tune import Fitted
from ballcast.model.anticipator import Anticipator
from ballcast.model.calibration import Calibration, weights_hash
from ballcast.model.chances import Chances, Floats
from ballcast.model.emit import emit_flat
from ballcast.model.pretrained import CONFIG, WEIGHTS
from ballcast.model.slots import Slots


def load_models(sources: Sequence[str], store: FeatureStore) -> list[Anticipator]:
    """The models of these folders or hub ids; an InputError unless all of them read the store's features."""
    models = [Anticipator.from_pretrained(source) for source in sources]
    for model, source in zip(models, sources, strict=True):
        check_fits(model, store, source)
        if model.config.windows != models[0].config.windows:
            raise InputError(f"{source}: reads another number of windows than {sources[0]}; average models that agree")
        if model.pos_weight != models[0].pos_weight:  # undone for all of them at once
            raise InputError(
                f"{source}: its loss counted an action {model.pos_weight:g} times, that of {sources[0]} "
                f"{models[0].pos_weight:g} times; average models that agree in loss.pos_weight"
            )
    return models


def hashes(sources: Sequence[str]) -> tuple[str, ...]:
    """What a calibration of these models knows them by."""
    return tuple(weights_hash(hub.locate(source, (CONFIG, WEIGHTS)) / WEIGHTS) for source in sources)


@torch.inference_mode()
def answer(models: Sequence[Anticipator], windows: WindowSet, device: torch.device) -> list[Chances]:
    """What each model answers, for every sample in order."""
    samples = Samples(windows, device, "auto")
    answers = []
    for model in models:
        parts = [Chances.of(slots) for slots in samples.run(model.to(device).eval())]
        answers.append(Chances.join(parts))
        model.cpu()  # many models need not fit on the device at once
    return answers


def scores_untuned(models: Sequence[Anticipator], windows: WindowSet, device: torch.device) -> Floats:
    """(n, 32, C): what a submission holds without a calibration, in the scorer's bins; 0: nothing is said."""
    if len(models) > 1:
        return untuned(models).scores(answer(models, windows, device))
    model = models[0].to(device).eval()
    with torch.inference_mode():
        parts = [grid_scores(slots, model.emit) for slots in Samples(windows, device, "auto").run(model)]
    return np.concatenate(parts)


def grid_scores(slots: Slots, config: EmitConfig) -> Floats:
    """(n, 32, C): all that is emitted, in the scorer's bins."""
    clip, position_ms, vectors = merge_arrays(*emit_flat(slots, config))
    scores = np.zeros((len(slots.objectness), GRID_BINS, vectors.shape[-1]), np.float32)
    scores[clip, grid_bin(position_ms)] = vectors
    return scores


def untuned(models: Sequence[Anticipator]) -> Calibration:
    """The calibration of models that were not tuned together: what their loss inflated is undone."""
    return Calibration.untuned(models[0].pos_weight)


def predict_together(
    models: Sequence[Anticipator], windows: WindowSet, calibration: Calibration, device: torch.device
) -> dict[str, list[Prediction]]:
    """All that the models anticipate together for each sample, by name, in order; one entry a bin."""
    predictions = calibration.predict(answer(models, windows, device))
    return dict(zip(windows.names, predictions, strict=True))


def calibration_of(fitted: Fitted, sources: Sequence[str], store: FeatureStore, samples: int) -> Calibration:
    """What was fitted to these models on `samples` samples of the store, with its weights' hashes and its figures."""
    figures = {
        "samples": float(samples),
        "before": fitted.before.avg,
        "after": fitted.after.avg,
        "outside_before": fitted.outside_before,
        "outside_after": fitted.outside_after,
    }
    about = f"{store.path.name}, features by {store.manifest.header.backbone.name}"
    return replace(fitted.calibration, weights=hashes(sources), fitted_on=about, figures=figures)

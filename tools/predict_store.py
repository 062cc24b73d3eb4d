"""Predictions of one model in torch for the clips of a store, in one call, for tools and tests."""

from collections.abc import Sequence

import torch

from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.events import Clip, Prediction
from ballcast.data.samples.batches import Samples
from ballcast.features.store import FeatureStore
from ballcast.inference.store_predictor import open_windows
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit


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

"""Predictions from feature stores."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ballcast.core.clips import Clip, Prediction
from ballcast.core.errors import InputError
from ballcast.core.grid import merge_bins
from ballcast.core.recipe import EmitConfig
from ballcast.data.batch import Samples
from ballcast.data.windows import official_windows
from ballcast.features.store import FeatureStore
from ballcast.model.anticipator import Anticipator
from ballcast.model.emit import emit


def check_fits(model: Anticipator, store: FeatureStore, source: Path | str) -> None:
    """An InputError unless the store's features are what the model was trained on."""
    grid = (model.config.clips, model.config.width)
    if (store.clips, store.width) != grid:
        raise InputError(
            f"{store.path}: windows of {store.clips} clips × {store.width} features, but the model {source} reads "
            f"{grid[0]} × {grid[1]}; extract with the backbone it was trained on"
        )
    trained_on = model.metadata.get("backbone", {})
    if trained_on.get("hash") not in (None, store.identity):
        raise InputError(
            f"{store.path}: was made by the backbone {store.manifest.header.backbone.name} ({store.identity[:12]}), "
            f"but the model {source} was trained on {trained_on.get('name')} ({trained_on['hash'][:12]})"
        )


@torch.inference_mode()
def predict_store(
    model: Anticipator, store: FeatureStore, clips: Sequence[Clip], config: EmitConfig, device: torch.device
) -> dict[str, list[Prediction]]:
    """Predictions for each of `clips`, by name, in their order; entries of one bin merged."""
    store.check_finite()
    samples = Samples(official_windows([(store, clips)], model.config.windows), device, "auto")
    model = model.to(device).eval()
    emitted = [sample for slots in samples.run(model) for sample in emit(slots, config)]
    return {clip.name: merge_bins(predictions) for clip, predictions in zip(clips, emitted, strict=True)}

"""Predictions from feature stores."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from ballcast.core.backbone import trained_size
from ballcast.core.clips import Clip, Prediction
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.recipe import EmitConfig
from ballcast.data.batch import Samples
from ballcast.data.event_windows import is_event_store, read_store
from ballcast.data.windows import WindowSet, official_windows
from ballcast.features.backbone import Backbone
from ballcast.features.manifest import BackboneIdentity
from ballcast.features.store import FeatureStore
from ballcast.model.anticipator import Anticipator
from ballcast.model.emit import emit
from ballcast.video.fit import other_size


def check_fits(model: Anticipator, store: FeatureStore, source: Path | str) -> None:
    """An InputError unless the store's features are of the backbone that the model (of `source`) was trained on; a
    warning if they are of pictures of another size.
    """
    grid, backbone = (store.clips, store.width), store.manifest.header.backbone
    _check(model, str(source), grid, backbone, f"{store.path}: was made by", "extract with")
    if told := other_size(store.manifest.picture_size, trained_size(model.metadata)):
        warnings.warn(f"{store.path}: {told}; extract again with that --size", BallcastWarning, stacklevel=2)


def check_backbone(model: Anticipator, backbone: Backbone, source: Path | str, place: Path | str) -> None:
    """An InputError unless the backbone (of `place`) is the one the model (of `source`) was trained on."""
    grid = (backbone.config.clips(), backbone.config.width)
    _check(model, str(source), grid, backbone.identity, f"{place}: is", "give")


def _check(
    model: Anticipator, source: str, grid: tuple[int, int], backbone: BackboneIdentity, given: str, mend: str
) -> None:
    trained_on = model.metadata.get("backbone", {})
    name = f"{given} the backbone {backbone.name} ({backbone.hash[:12]})"
    if grid != (model.config.clips, model.config.width):
        raise InputError(
            f"{name}, with windows of {grid[0]} clips × {grid[1]} features, but the model {source} reads "
            f"{model.config.clips} × {model.config.width}; {mend} the backbone it was trained on"
        )
    if trained_on.get("hash") not in (None, backbone.hash):
        raise InputError(
            f"{name}, but the model {source} was trained on {trained_on.get('name')} ({trained_on['hash'][:12]}); "
            f"{mend} that one"
        )


def open_windows(store: FeatureStore, clips: Sequence[Clip], windows: int) -> WindowSet:
    """The samples of a store: its `clips` or, if it was made from event feeds, all it has."""
    store.check_finite()
    return read_store(store).windows if is_event_store(store) else official_windows([(store, clips)], windows)


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
    """All that is emitted for each of `clips`, or for all windows of an event store, by name, in their order.

    Entries of one bin are not merged yet.

    `pos_weight`, the loss's, makes the confidences honest chances; see `emit_arrays`.
    """
    samples = Samples(open_windows(store, clips, model.config.windows), device, "auto")
    model = model.to(device).eval()
    emitted = [sample for slots in samples.run(model) for sample in emit(slots, config, pos_weight=pos_weight)]
    return dict(zip(samples.windows.names, emitted, strict=True))

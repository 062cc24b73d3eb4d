"""Feature stores and labels of the splits a recipe names, opened and checked against each other and the model."""

from collections.abc import Sequence
from pathlib import Path

from ballcast.core.clips import Clip
from ballcast.core.errors import InputError
from ballcast.core.recipe import DataConfig, ModelConfig
from ballcast.data.soccernet import LABELS, read_labels
from ballcast.data.windows import WindowSet, official_windows, stitched_windows
from ballcast.features.store import FeatureStore

Splits = list[tuple[FeatureStore, list[Clip]]]


def open_splits(data: DataConfig, names: Sequence[str], model: ModelConfig) -> Splits:
    """The store and the labelled clips of each split; an InputError says what does not fit, and how to mend it."""
    splits: Splits = []
    for name in names:
        store = FeatureStore.open(Path(data.features) / name)
        labels = Path(data.labels) / name / LABELS if data.labels else store.labels
        if labels is None:
            raise InputError(f"{store.path}: no {LABELS} in the store; say where the labels are with data.labels=DIR")
        clips = read_labels(labels)
        for key, found in (("clips", store.clips), ("width", store.width)):
            if found != getattr(model, key):
                raise InputError(
                    f"{store.path}: has {found} {'clips a window' if key == 'clips' else 'features a clip'} where the "
                    f"recipe says {getattr(model, key)}; add model.{key}={found}"
                )
        if splits:
            splits[0][0].check_same_backbone(store)
        store.check_finite()
        splits.append((store, clips))
    return splits


def training_windows(splits: Splits, data: DataConfig, model: ModelConfig) -> WindowSet:
    if data.stitch:
        return stitched_windows(splits, model.windows, every_ms=data.every_ms)
    return official_windows(splits, model.windows)

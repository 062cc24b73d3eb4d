"""What a run learns from: stores and labels of the splits a recipe names, checked against each other and the model."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ballcast.core.actions import FPS
from ballcast.core.clips import Clip
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.recipe import DataConfig, ModelConfig, Recipe
from ballcast.data.event_windows import is_event_store, read_store
from ballcast.data.pixels import Sources, split_sources
from ballcast.data.soccernet import read_labels
from ballcast.data.windows import WindowSet, official_windows, stitched_windows
from ballcast.features.manifest import BackboneIdentity
from ballcast.features.store import LABELS, FeatureStore

Splits = list[tuple[FeatureStore, list[Clip]]]


def open_splits(data: DataConfig, names: Sequence[str], model: ModelConfig) -> Splits:
    """The store and the labelled clips of each split; an InputError says what does not fit, and how to mend it."""
    splits: Splits = []
    for name in names:
        store = FeatureStore.from_pretrained(data.features, name)
        clips = [] if is_event_store(store) else _labelled_clips(store, data, name)
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


def _labelled_clips(store: FeatureStore, data: DataConfig, name: str) -> list[Clip]:
    labels = Path(data.labels) / name / LABELS if data.labels else store.labels
    if labels is None:
        raise InputError(f"{store.path}: no {LABELS} in the store; say where the labels are with data.labels=DIR")
    return read_labels(labels)


def training_windows(splits: Splits, data: DataConfig, model: ModelConfig) -> WindowSet:
    if is_event_store(splits[0][0]):
        return _event_windows(splits, scored=False)
    if data.stitch:
        return stitched_windows(splits, model.windows, every_ms=data.every_ms)
    return official_windows(splits, model.windows)


def scored_windows(splits: Splits, model: ModelConfig) -> WindowSet:
    if is_event_store(splits[0][0]):
        return _event_windows(splits, scored=True)
    return official_windows(splits, model.windows)


def _event_windows(splits: Splits, *, scored: bool) -> WindowSet:
    return WindowSet.join([read_store(store, scored=scored).windows for store, _ in splits])


@dataclass(frozen=True)
class Material:
    """Windows to train on, windows to be chosen by (None: the last epoch is taken), and what made their features.

    For fine-tuning also where the windows' pixels are. `leaks`: "3 of 10" by the split of `valid` whose videos the
    backbone has seen. `picture_size`: H, W of the training videos; None: unknown, or not all the same.
    """

    train: WindowSet
    valid: WindowSet | None
    backbone: BackboneIdentity
    train_sources: Sources = ()
    valid_sources: Sources = ()
    leaks: dict[str, str] = field(default_factory=dict)
    picture_size: tuple[int, int] | None = None


def open_material(recipe: Recipe) -> Material:
    """The windows of the stores a recipe names."""
    if both := set(recipe.data.train) & set(recipe.data.valid):
        raise InputError(
            f"{min(both)} is trained on and validated on, which would choose the most overfitted model; "
            "take it out of one, for example data.valid=[]"
        )
    train = open_splits(recipe.data, recipe.data.train, recipe.model)
    valid = open_splits(recipe.data, recipe.data.valid, recipe.model)
    if valid:
        train[0][0].check_same_backbone(valid[0][0])
    leaks = {store.path.name: told for store, _ in valid if (told := _tell_leak(store))}
    windows = training_windows(train, recipe.data, recipe.model)
    if windows.left_out:
        warnings.warn(
            f"{windows.left_out} of {windows.left_out + len(windows)} training windows are left out, since the stores "
            f"have windows 5 s apart; `ballcast extract --every {recipe.data.every_ms * FPS // 1000}` makes them all",
            BallcastWarning,
            stacklevel=2,
        )
    scored = scored_windows(valid, recipe.model) if valid else None
    sizes = {store.manifest.picture_size for store, _ in train}
    size = sizes.pop() if len(sizes) == 1 else None
    material = Material(windows, scored, train[0][0].manifest.header.backbone, leaks=leaks, picture_size=size)
    if recipe.train.backbone == "frozen" or windows.mirrored:
        return material
    videos = Path(recipe.finetune.videos)
    seen, scored_by = (split_sources([store for store, _ in splits], videos) for splits in (train, valid))
    return replace(material, train_sources=seen, valid_sources=scored_by)


def _tell_leak(store: FeatureStore) -> str:
    """Warn of the videos that the backbone has seen; "3 of 10" if there are any."""
    if not (seen := store.seen_in_training()):
        return ""
    warnings.warn(
        f"{store.path}: its backbone, {store.manifest.header.backbone.name}, was trained on {len(seen)} of its "
        f"{len(store)} videos ({seen[0]}, …), so scores on them are too good; pre-train on the training games only",
        BallcastWarning,
        stacklevel=3,
    )
    return f"{len(seen)} of {len(store)}"

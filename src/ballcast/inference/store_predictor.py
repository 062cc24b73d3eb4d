"""Predictions for the clips of a feature store, by one model or by several together. No torch here."""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ballcast.core import hub
from ballcast.core.actions import OBSERVED_MS
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.backbone_config import BackboneIdentity, trained_size
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import Clip, ClipForecast, Prediction
from ballcast.data.events.event_windows import read_store
from ballcast.data.samples.windows import ABSENT, WindowSet, official_windows
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FeatureStore, read_rows
from ballcast.inference.runtime import TrainedModel, WindowModel
from ballcast.model.postprocess import SlotArrays, SlotProbabilities, emit
from ballcast.model.score_mapping import ScoreMapping, weights_hash
from ballcast.video.luma import other_size

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone

BATCH = 128  # samples at a time

Progress = Callable[[int, int], None]  # samples done, and in all


def check_fits(model: TrainedModel, store: FeatureStore, source: Path | str) -> None:
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


def check_ensemble(models: Sequence[TrainedModel], sources: Sequence[str], store: FeatureStore) -> None:
    """Raise an InputError unless all models read the store's features and can be averaged."""
    for model, source in zip(models, sources, strict=True):
        check_fits(model, store, source)
        if model.config.windows != models[0].config.windows:
            raise InputError(f"{source}: reads another number of windows than {sources[0]}; average models that agree")
        if model.pos_weight != models[0].pos_weight:  # it is undone for all models at once
            raise InputError(
                f"{source}: was trained with loss.pos_weight {model.pos_weight:g}, {sources[0]} "
                f"with {models[0].pos_weight:g}; average models that agree in it"
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


def run_windows(
    model: WindowModel, windows: WindowSet, progress: Progress = lambda done, total: None
) -> Iterator[SlotArrays]:
    """Yield the slots of all samples in order, `BATCH` samples at a time."""
    for begin in range(0, len(windows), BATCH):
        index = windows.index[begin : begin + BATCH]  # (B, W)
        features = read_rows(windows.rows, index.clip(0).reshape(-1))
        yield model.slots(features.reshape(*index.shape, *features.shape[1:]), index != ABSENT)
        progress(min(begin + BATCH, len(windows)), len(windows))


def forecast_windows(
    model: WindowModel, windows: WindowSet, config: EmitConfig, progress: Progress = lambda done, total: None
) -> Generator[ClipForecast, None, None]:
    """Yield what the model emits for each sample, with its own scores; predictions of one bin are not merged."""
    names = iter(windows.names)
    for slots in run_windows(model, windows, progress):
        for predictions in emit(slots, config):
            yield ClipForecast(OBSERVED_MS, tuple(predictions), next(names))


def forecast_together(
    models: Sequence[WindowModel],
    windows: WindowSet,
    mapping: ScoreMapping,
    progress: Progress = lambda done, total: None,
) -> Generator[ClipForecast, None, None]:
    """Yield the predictions of an ensemble, or of a tuned model, for each sample: one per bin."""
    parts = [run_windows(model, windows, progress) for model in models]
    names = iter(windows.names)
    for outputs in zip(*parts, strict=True):
        for predictions in mapping.predict([SlotProbabilities.of(slots) for slots in outputs]):
            yield ClipForecast(OBSERVED_MS, tuple(predictions), next(names))


def untuned(models: Sequence[TrainedModel]) -> ScoreMapping:
    """The score mapping of models that were not tuned together: only the loss's `pos_weight` is undone."""
    return ScoreMapping.untuned(models[0].pos_weight)


def hashes(sources: Sequence[str]) -> tuple[str, ...]:
    """The hashes of the models' weights (folders or hub ids), as `ScoreMapping.weights` holds them."""
    weights = "model.safetensors"
    return tuple(weights_hash(hub.locate(source, ("config.json", weights)) / weights) for source in sources)


def by_clip(forecasts: Iterable[ClipForecast]) -> dict[str, tuple[Prediction, ...]]:
    """Predictions by clip, in their order, as a submission has them."""
    return {made.clip: made.predictions for made in forecasts}

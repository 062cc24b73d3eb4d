"""Training data: the windows of feature stores, the frames of games, or the event feeds that a recipe names.

Stores are checked against each other and against the model, and their labels are read.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from ballcast.core.actions import FPS
from ballcast.core.anticipator_config import DataConfig, ModelConfig, Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.events import Clip
from ballcast.core.feed_config import FeedDataConfig, FeedRecipe
from ballcast.core.progress import ProgressBar, no_bar
from ballcast.data.events.event_grid import read_store, split_matches
from ballcast.data.events.feed_files import recognise
from ballcast.data.events.kloppy_feed import AUTO, match_files, missing_details, read_match
from ballcast.data.events.wyscout import read_table
from ballcast.data.labels.games import choose_games
from ballcast.data.labels.label_sets import LabelSet, choose_label_sets
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.feed_samples import FeedEvents, FeedWindows, Match
from ballcast.data.samples.frames import FrameCache, open_frames
from ballcast.data.samples.windows import (
    PAPER_CLASS_WEIGHTS,
    PAPER_CLIPS,
    PAPER_SAMPLES,
    WindowSet,
    official_windows,
    stitched_windows,
)
from ballcast.features.store import LABELS, FeatureStore
from ballcast.training.progress import Log, ignore

Splits = list[tuple[FeatureStore, list[Clip]]]
GameCache = FrameCache | FeatureCache

# ------------------------------------------------------------------------------------------------------ feature stores


def fit_to_store(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Give the model the sizes of the first training store's windows, unless an override has them.

    No other model could be trained on it, so nobody should have to look them up.
    """
    if recipe.train.backbone == "end_to_end" or not recipe.data.train:
        return recipe
    overridden = {text.partition("=")[0] for text in overrides}
    store = FeatureStore.from_pretrained(recipe.data.features, recipe.data.train[0])
    clips = recipe.model.clips if "model.clips" in overridden else store.snippets
    width = recipe.model.width if "model.width" in overridden else store.width
    return replace(recipe, model=replace(recipe.model, clips=clips, width=width))


def open_splits(data: DataConfig, names: Sequence[str], model: ModelConfig) -> Splits:
    """The store and the labelled clips of each split; an InputError says what does not fit, and how to fix it."""
    splits: Splits = []
    for name in names:
        store = FeatureStore.from_pretrained(data.features, name)
        clips = [] if store.is_event_grid else _labelled_clips(store, data, name)
        for key, found in (("clips", store.snippets), ("width", store.width)):
            if found != getattr(model, key):
                what = "snippets a window" if key == "clips" else "features a snippet"
                wanted = getattr(model, key)
                raise InputError(
                    f"{store.path}: has {found} {what} where the recipe has {wanted}; add model.{key}={found}"
                )
        if splits:
            splits[0][0].check_same_backbone(store)
        store.check_finite()
        splits.append((store, clips))
    return splits


def _labelled_clips(store: FeatureStore, data: DataConfig, name: str) -> list[Clip]:
    labels = Path(data.labels) / name / LABELS if data.labels else store.labels
    if labels is None:
        raise InputError(f"{store.path}: no {LABELS} in the store; give the labels with data.labels=DIR")
    return read_labels(labels)


def training_windows(splits: Splits, data: DataConfig, model: ModelConfig) -> WindowSet:
    if splits[0][0].is_event_grid:
        return _event_windows(splits, scored=False)
    if data.stitch:
        return stitched_windows(splits, model.windows, every_ms=data.every_ms, tolerance_ms=data.stitch_tolerance_ms)
    return official_windows(splits, model.windows)


def describe_samples(windows: WindowSet, weights: Tensor) -> str:
    """One line: samples, stretches and the range of the class weights (C,), beside the paper's."""
    summary = f"{len(windows)} training samples"
    if windows.stretches:
        lengths = [length for split in windows.stretches for length in split]
        clips = sum(lengths)
        summary += (
            f" of {clips} clips ({len(windows) / clips:.2f} a clip), stitched into {len(lengths)} "
            f"stretch{'es' if len(lengths) != 1 else ''} of {clips / len(lengths):.1f} clips on average"
        )
    return (
        f"{summary}; class weights w_c {weights.min():.2f} to {weights.max():.2f} (the paper: about {PAPER_SAMPLES} of "
        f"{PAPER_CLIPS} clips, {PAPER_SAMPLES / PAPER_CLIPS:.2f} a clip; "
        f"w_c {PAPER_CLASS_WEIGHTS[0]} to {PAPER_CLASS_WEIGHTS[1]})"
    )


def check_stitching(windows: WindowSet, weights: Tensor, data: DataConfig) -> None:
    """Warn if most clips could not be joined, or if SN-BAA's training split gives other numbers than the paper's.

    Samples that were left out because they have no features have another warning, and are counted here.
    """
    clips = sum(map(sum, windows.stretches))
    joined = clips - sum(map(len, windows.stretches))
    neighbours = clips - len(windows.stretches)
    faults = []
    if 2 * joined < neighbours:
        faults.append(
            f"only {joined} of {neighbours} clips could be joined to the clip before them, since their labels do not "
            f"agree within {data.stitch_tolerance_ms} ms, so most windows between clips are missing; are the clips in "
            "the order of the data set? Raise data.stitch_tolerance_ms, or set data.stitch=false if the clips do not "
            "overlap"
        )
    if abs(clips - PAPER_CLIPS) <= 0.02 * PAPER_CLIPS and data.every_ms == 1000:  # SN-BAA's whole training split
        count = len(windows) + windows.left_out
        if abs(count - PAPER_SAMPLES) > 0.05 * PAPER_SAMPLES:
            faults.append(f"{clips} clips give {count} training samples where the paper has about {PAPER_SAMPLES}")
        found = (float(weights.min()), float(weights.max()))
        if any(abs(ours - paper) > 0.1 * paper for ours, paper in zip(found, PAPER_CLASS_WEIGHTS, strict=True)):
            faults.append(
                f"the class weights are {found[0]:.2f} to {found[1]:.2f} where the paper has "
                f"{PAPER_CLASS_WEIGHTS[0]} to {PAPER_CLASS_WEIGHTS[1]}; check the labels with `ballcast data check`"
            )
    for fault in faults:
        warnings.warn(fault, BallcastWarning, stacklevel=2)


def scored_windows(splits: Splits, model: ModelConfig) -> WindowSet:
    if splits[0][0].is_event_grid:
        return _event_windows(splits, scored=True)
    return official_windows(splits, model.windows)


def _event_windows(splits: Splits, *, scored: bool) -> WindowSet:
    return WindowSet.join([read_store(store, scored=scored).windows for store, _ in splits])


@dataclass(frozen=True)
class TrainingData:
    """Windows to train on, windows that choose the best epoch (None: the last one is kept), and their backbone.

    - `leaks`: by split of `valid`, such as "3 of 10": the videos that the backbone was trained on.
    - `picture_size`: H, W of the training videos; None: unknown, or not all the same.
    """

    train: WindowSet
    valid: WindowSet | None
    backbone: BackboneIdentity
    leaks: dict[str, str] = field(default_factory=dict)
    picture_size: tuple[int, int] | None = None


def open_training_data(recipe: Recipe) -> TrainingData:
    """Open the windows of the stores a recipe names."""
    if both := set(recipe.data.train) & set(recipe.data.valid):
        raise InputError(
            f"{min(both)} is trained on and validated on, which would choose the most overfitted model; "
            "take it out of one, for example data.valid=[]"
        )
    train = open_splits(recipe.data, recipe.data.train, recipe.model)
    valid = open_splits(recipe.data, recipe.data.valid, recipe.model)
    if valid:
        train[0][0].check_same_backbone(valid[0][0])
    leaks = {store.path.name: leak for store, _ in valid if (leak := _warn_of_leak(store))}
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
    return TrainingData(windows, scored, train[0][0].manifest.header.backbone, leaks=leaks, picture_size=size)


def _warn_of_leak(store: FeatureStore) -> str:
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


# ----------------------------------------------------------------------------------------------------- frames of games


@dataclass(frozen=True)
class EndToEndData:
    """The frames, or features, of the games to train on, to validate on and to test on; None: there are none.

    `others`: further label sets, for the spotting loss only; their games come last in `train`.
    """

    train: GameCache
    valid: GameCache | None
    test: GameCache | None = None
    others: tuple[LabelSet, ...] = ()


def open_end_to_end_data(
    recipe: Recipe, device: torch.device, log: Log = ignore, bar: ProgressBar = no_bar
) -> EndToEndData:
    """Decode the games of a recipe.

    Args:
        recipe: of the run.
        device: where frames are wanted.
        log: called with a line for each split.
        bar: opens the progress bar of decoding.
    """
    games = choose_games(recipe.games)
    others = tuple(choose_label_sets(recipe.games))
    games["train"] += [game for label_set in others for game in label_set.games]
    colour = recipe.encoder.network.colour

    def frames(split: str) -> FrameCache | None:
        if not games[split]:
            return None
        read_once = recipe.encoder.features and split != "test"  # for the cache of features, and not kept
        config = replace(recipe.games, device="disk") if read_once else recipe.games
        with bar() as decoded:
            return open_frames(games[split], config, device, title=split, log=log, progress=decoded, colour=colour)

    train = frames("train")
    assert train is not None  # `choose_games` refuses an empty one
    return EndToEndData(train, frames("valid"), frames("test"), others)


# --------------------------------------------------------------------------------------------------------- event feeds


@dataclass(frozen=True)
class FeedData:
    """The events to train on, and the windows that choose the best epoch (None: the last one is kept).

    `matches`: the names of the training matches.
    """

    train: FeedEvents
    valid: FeedWindows | None
    matches: tuple[str, ...]


def open_feed_data(recipe: FeedRecipe, device: torch.device, log: Log = ignore) -> FeedData:
    """Read the matches of a recipe; `log` is called with a line for each kind of split."""
    data = recipe.data
    splits = read_matches(data)
    train = [match for name in data.train for match in splits[name]]
    valid = [match for name in data.valid for match in splits[name]]
    names = tuple(match.feed.match for match in train)
    if both := set(names) & {match.feed.match for match in valid}:
        raise InputError(
            f"match {min(both)} is trained on and validated on, which would choose the most overfitted model; "
            "take it out of one, for example data.valid=[]"
        )
    events = FeedEvents.from_matches(train, device)
    log(
        f"train: {len(train)} match{'es' * (len(train) != 1)}, {len(events.table.clock)} events, "
        f"{len(events.clock)} of them actions, in {events.total / 3_600_000:.1f} hours"
    )
    windows = None
    if valid:
        windows = FeedWindows.from_matches(valid, data.every_ms)
        log(f"valid: {len(valid)} match{'es' * (len(valid) != 1)}, {len(windows)} windows")
    return FeedData(events, windows, names)


def read_matches(data: FeedDataConfig) -> dict[str, list[Match]]:
    """The matches of each split that the recipe names.

    In a folder, matches that cannot be read are left out with a warning.
    """
    source = Path(data.source)
    names = dict.fromkeys((*data.train, *data.valid))
    if not source.exists():
        raise InputError(
            f"{source}: no such file or folder; set data.source to the parquet table of events, or to a folder with a "
            f"folder of feeds for each split ({', '.join(names)})"
        )
    if source.is_file():
        splits = split_matches(read_table(source), data.size)
        for name in names:
            if name not in splits:
                raise InputError(f"{source}: has the splits {', '.join(splits)}, and no split {name!r}")
        return {name: [Match(feed) for feed in splits[name]] for name in names}
    return {name: _read_folder(source / name, data.provider) for name in names}


def _read_folder(folder: Path, provider: str) -> list[Match]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; put the feeds of this split there, or change data.source")
    provider = recognise(folder) if provider == AUTO else provider
    matches, faults = [], []
    for path in match_files(folder, provider):
        try:
            matches.append(Match(read_match(path, provider), missing_details(path, provider)))
        except InputError as error:
            faults.append(str(error))
    if not matches:
        raise InputError(f"{folder}: not one match could be read: {faults[0]}")
    if faults:
        warnings.warn(
            f"{folder}: {len(faults)} of {len(faults) + len(matches)} matches cannot be read and are left out; the "
            f"first: {faults[0]}",
            BallcastWarning,
            stacklevel=2,
        )
    return matches

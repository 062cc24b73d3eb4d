"""End to end: one model for training and scoring, a run that goes on after a kill."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from games import make_matches
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import nn

import ballcast
from ballcast.core.anticipator_config import Recipe
from ballcast.core.checks import add_safetensors_checksum
from ballcast.core.config import load
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.errors import InputError
from ballcast.data.labels.games import find_games
from ballcast.data.samples import feature_cache
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.frames import FrameCache
from ballcast.export.export import export
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.frame_network import to_channels_last
from ballcast.features.stack_index import snippet_count, stack_offsets
from ballcast.model.anticipator import Anticipator
from ballcast.model.end_to_end import load_end_to_end
from ballcast.training.augment import planes
from ballcast.training.end_to_end import EndToEndTask
from ballcast.training.evaluation import game_scores, predict_clips, predict_windows
from ballcast.training.loop import RunContext
from ballcast.training.models import build_end_to_end
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train
from ballcast.training.step import FrameBatch

CPU = torch.device("cpu")
SMALL = [
    *("encoder.network.encoder=test_efficientnet", "encoder.network.projected=16", "encoder.start=scratch"),
    *("model.width=16", "model.dense.dim=16", "model.dense.heads=2", "model.dense.ffn=16", "model.dense.gru_layers=1"),
    *("train.batch=2", "train.epochs=2", "train.restart_epochs=1", "data.every_ms=4000"),
]
COLOUR_STACKS = ["encoder.network.colour=true", "encoder.network.step=2", "model.clips=61"]
COLOUR = ["encoder.network.colour=true", "encoder.network.frames=1", "encoder.network.stack=1", "model.clips=63"]


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_matches(tmp_path_factory.mktemp("matches"), ("train", "valid", "test"), frames=1000)


def recipe(matches: Path, *overrides: str) -> Recipe:
    return load(Recipe, Path("e2e"), [f"games.sources=[{matches}]", *SMALL, *overrides])


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a run wrote that must not depend on how often it was interrupted."""
    kept = [p for p in folder.rglob("*") if p.is_file() and "tensorboard" not in p.parts]
    timed = ("environment.json", "epochs.csv", "report.json")
    return {str(p.relative_to(folder)): p.read_bytes() for p in kept if p.name not in timed}


@pytest.mark.parametrize(
    "extra",
    [
        [],
        ["model.kind=hierarchy", "model.hierarchy.dim=16", "model.slots=4", "loss.pair_norm=pairs"],
        ["model.kind=faantra", "model.faantra.dim=16", "model.faantra.heads=2", "model.faantra.clip_ms=80"],
        ["encoder.network.shift=gated", "encoder.recompute=true"],
        [*COLOUR, "model.windows=2"],
    ],
    ids=["dense", "slots", "faantra", "shift", "colour"],
)
def test_it_trains_scores_and_is_loaded_again(matches: Path, tmp_path: Path, extra: list[str]) -> None:
    config = recipe(matches, *extra, "games.test=[test]", "train.epochs=1", "train.restart_epochs=1")
    progress = train(config, tmp_path / "run", device=CPU)
    assert progress.finished
    assert 0 <= progress.best <= 1
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert 0 <= report["anticipation"]["avg"] <= 1
    learner = load_end_to_end(tmp_path / "run/best")
    assert learner.backbone.hash == learner.anticipator.metadata["backbone"]["hash"]
    assert learner.backbone.metadata["picture_size"] == learner.anticipator.metadata["picture_size"]
    assert isinstance(Anticipator.from_pretrained(tmp_path / "run/best"), Anticipator)


@pytest.mark.parametrize("colour", [False, True], ids=["gray", "colour"])
def test_the_extracted_features_are_those_of_training(matches: Path, tmp_path: Path, colour: bool) -> None:
    """What `extract` and `predict` compute of a window is what the model was trained on."""
    config = recipe(matches, "train.epochs=1", *(COLOUR_STACKS if colour else []))
    train(config, tmp_path / "run", device=CPU)
    learner = load_end_to_end(tmp_path / "run/best")
    cache = FrameCache(find_games(matches)[:1], CPU, colour=colour)
    frames = cache.read(0, 125)
    with torch.no_grad():
        own = learner.features(planes(frames[None, learner.frame_offsets], colour=colour))[0, 0]
    backbone = Backbone.from_pretrained(tmp_path / "run/best_backbone")
    extracted = BatchEncoder(backbone).windows(frames, [0])[0]
    assert extracted.shape == (snippet_count(backbone.config), 16)
    # In colour, stored luma may be of colours that cannot be shown, which training cuts off first.
    torch.testing.assert_close(extracted, own, rtol=1e-5, atol=1e-2 if colour else 1e-5)


def test_mirrored_and_along_a_game(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches, "train.epochs=1"), tmp_path / "run", device=CPU)
    learner = load_end_to_end(tmp_path / "run/best")
    cache = FrameCache(find_games(matches)[:1], CPU)
    clips, seen = predict_clips(learner, cache)
    _, mirrored = predict_clips(learner, cache, flip=True)
    assert len(clips) == len(seen.objectness) == len(mirrored.objectness)
    assert not torch.equal(seen.objectness, mirrored.objectness)
    scores, times = game_scores(learner, cache, 0)
    assert len(scores) == len(times)
    assert times[0] == 40  # the middle of the first stack of three frames
    assert times[-1] >= 40 * (int(cache.length[0]) - 5)
    assert ((scores >= 0) & (scores <= 1)).all()


def cut_after(steps: int) -> Any:
    seen = 0

    def show(update: ProgressUpdate) -> None:
        nonlocal seen
        seen += not update.ended
        if seen == steps:
            raise KeyboardInterrupt

    return show


def test_cut_anywhere_and_run_again_it_ends_with_the_same_bytes(matches: Path, tmp_path: Path) -> None:
    config = recipe(matches, "train.save_every=1", "train.ema=0.9", "augment.mixup=0.2")
    train(config, tmp_path / "whole", device=CPU)
    for steps in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", device=CPU, show=cut_after(steps))
    train(config, tmp_path / "cut", device=CPU)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_further_label_set_has_a_head_of_its_own(matches: Path, tmp_path: Path) -> None:
    other = make_matches(tmp_path / "other", ("train",), frames=500)
    config = recipe(matches, f"games.also=[{other}]", "train.epochs=1")
    train(config, tmp_path / "run", device=CPU)
    learner = load_end_to_end(tmp_path / "run/best")
    assert not len(learner.heads)  # of training only
    alone = recipe(matches, "train.epochs=1")
    train(alone, tmp_path / "alone", device=CPU)
    assert learner.backbone.hash != load_end_to_end(tmp_path / "alone/best").backbone.hash


def test_it_starts_from_a_trained_model_and_from_nothing_else(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches, "train.epochs=1"), tmp_path / "first", device=CPU)
    warm = recipe(matches, f"encoder.start={tmp_path / 'first/best'}", "train.epochs=1", "train.lr=1e-9")
    train(warm, tmp_path / "second", device=CPU)
    first, second = (load_end_to_end(tmp_path / name / "best") for name in ("first", "second"))
    name = "project.weight"
    torch.testing.assert_close(
        second.anticipator.network.state_dict()[name], first.anticipator.network.state_dict()[name]
    )
    assert second.backbone.metadata["start_hash"] == first.backbone.hash
    other = recipe(matches, f"encoder.start={tmp_path / 'first/best'}", "model.dense.ffn=32")
    with pytest.raises(InputError, match="its sizes are not those of the recipe"):
        train(other, tmp_path / "third", device=CPU)


def test_a_new_head_on_the_encoder_of_a_trained_model(matches: Path, tmp_path: Path) -> None:
    """Of another kind, on 10 s instead of 5: only the encoder must have the recipe's sizes."""
    train(recipe(matches, "train.epochs=1"), tmp_path / "first", device=CPU)
    other = ["model.kind=faantra", "model.faantra.dim=16", "model.faantra.heads=2", "model.faantra.clip_ms=80"]
    start = f"encoder.start={tmp_path / 'first/best_backbone'}"
    config = head_only(matches, tmp_path / "features", start, *other, "model.windows=2", "train.epochs=1")
    assert train(config, tmp_path / "second", device=CPU).finished
    first, second = (load_end_to_end(tmp_path / name / "best") for name in ("first", "second"))
    assert second.backbone.metadata["start_hash"] == first.backbone.hash
    assert all(torch.equal(v, second.backbone.state_dict()[k]) for k, v in first.backbone.state_dict().items())
    assert (second.anticipator.config.kind, second.windows) == ("faantra", 2)
    with pytest.raises(InputError, match="its sizes are not those of the recipe"):
        train(recipe(matches, start, "encoder.network.stride=4", "model.clips=31"), tmp_path / "third", device=CPU)


def test_it_starts_from_the_embedded_model(tmp_path: Path) -> None:
    config = load(Recipe, Path("e2e"), ["encoder.start=embedded"])
    learner = build_end_to_end(config, [], tmp_path, (224, 398), resumed=False)
    embedded = Backbone.from_pretrained(BACKBONE)
    assert learner.backbone.metadata["start_hash"] == embedded.hash
    weights = Anticipator.from_pretrained(MODEL).state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in learner.anticipator.state_dict().items())


def test_a_frozen_encoder_stays_as_it_is(matches: Path, tmp_path: Path) -> None:
    config = recipe(matches, "encoder.learns=false", "train.epochs=1")
    train(config, tmp_path / "run", device=CPU)
    before = Backbone.from_pretrained(tmp_path / "run/last_backbone")
    torch.manual_seed(config.train.seed)
    fresh = Backbone(config.encoder.network)
    for key, value in fresh.state_dict().items():
        assert torch.equal(value, before.state_dict()[key]), key


def head_only(matches: Path, features: Path, *overrides: str) -> Recipe:
    """The recipe that trains the head alone, on features computed once."""
    return recipe(matches, "encoder.learns=false", f"encoder.features={features}", *overrides)


@pytest.fixture(scope="module")
def encoders(matches: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Encoders, gray and in colour, whose features tell stacks apart: their norms have seen frames."""
    folders = {}
    for colour in (False, True):
        torch.manual_seed(5)
        backbone = Backbone(recipe(matches, *(COLOUR if colour else [])).encoder.network).train()
        cache = FrameCache(find_games(matches)[:1], CPU, colour=colour)
        with torch.no_grad():
            for seed in range(20):
                begins = np.random.default_rng(seed).integers(0, 900, (16, 1))
                backbone.features(cache.take(begins + stack_offsets(backbone.config)))
        folders[colour], backbone.note = tmp_path_factory.mktemp("encoder"), "has seen frames"
        backbone.eval().save_pretrained(folders[colour])
    return folders


@pytest.mark.parametrize("flip", [0, 0.5], ids=["", "mirrored"])
@pytest.mark.parametrize("extra", [[], ["model.windows=2"], COLOUR], ids=["one window", "two windows", "colour"])
def test_features_computed_once_are_those_of_the_frames(
    matches: Path,
    tmp_path: Path,
    encoders: dict[bool, Path],
    extra: list[str],
    flip: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so, without other augmentation, are the losses of a step; in pieces and parts that do not divide the game."""
    monkeypatch.setattr(feature_cache, "PIECE", 50)
    monkeypatch.setattr(feature_cache, "PART", 333)
    same = [f"augment.{key}=0" for key in ("shift", "zoom", "brightness", "contrast", "blur", "drop", "mixup")]
    start = f"encoder.start={encoders[extra is COLOUR]}"
    config = head_only(matches, tmp_path / "features", start, *extra, *same, f"augment.flip={flip}")
    task = EndToEndTask(config, RunContext(tmp_path / "run", CPU))
    learner, ends = task.learner.eval(), task.sampler.draw(np.random.default_rng(0)).frame
    assert task.data.valid
    for cache, at in ((task.data.train, ends), (task.data.valid, ends - np.arange(len(ends)) % 2)):
        frames, first = FrameCache(cache.games, CPU, colour=learner.colour), at[:, None] - learner.span
        pictures = planes(frames.take(first + learner.frame_offsets), colour=learner.colour)
        with torch.no_grad():
            seen = learner.features(pictures).flatten(1, 2)
        assert seen.std((0, 1)).mean() > 2e-3
        torch.testing.assert_close(cache.take(first + learner.stack_offsets), seen, rtol=0, atol=2e-4)
        if flip and cache is task.data.train:
            with torch.no_grad():
                turned = learner.features(pictures.flip(-1)).flatten(1, 2)
            assert (turned - seen).abs().max() > 2e-3
            found = cache.take(cache.total + first + learner.stack_offsets)
            torch.testing.assert_close(found, turned, rtol=0, atol=2e-4)
    batches: list[FrameBatch] = list(task.batches(0, 0))
    learner.eval()
    drawn, per = task.sampler.draw(np.random.default_rng([0, 0])).frame, config.train.batch
    frames = FrameCache(task.data.train.games, CPU, colour=learner.colour)
    turned = torch.cat([batch.augmentation.turn < 0 for batch in batches])
    assert (turned.any() and not turned.all()) if flip else not turned.any()
    for number, batch in enumerate(batches):
        how = batch.augmentation
        pixels = frames.take(drawn[per * number : per * number + per, None] - learner.span + learner.frame_offsets)
        shown = planes(pixels, colour=learner.colour)
        with torch.no_grad():
            own = learner.features(torch.where(how.turn[:, None, None, None] < 0, shown.flip(-1), shown)).flatten(1, 2)
        torch.testing.assert_close(batch.seen, own, rtol=0, atol=2e-4)
        kept = torch.arange(pixels.shape[1]).expand(per, -1)
        of_frames = replace(batch, seen=pixels, augmentation=replace(how, kept=kept))
        stored, fresh = task.step.losses_of(batch), task.step.losses_of(of_frames)
        torch.testing.assert_close(torch.stack(stored), torch.stack(fresh), rtol=1e-3, atol=1e-3)
    assert batches


def test_a_head_is_trained_alone_on_features_that_other_runs_share(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches, "train.epochs=1"), tmp_path / "first", device=CPU)
    start, folder = f"encoder.start={tmp_path / 'first/best'}", tmp_path / "features"
    config = head_only(matches, folder, start, "games.test=[test]", "train.lr=1e-2")
    lines, cache = list[str](), FrameCache(find_games(matches)[:1], CPU)
    progress = train(config, tmp_path / "run", device=CPU, log=lines.append)
    assert progress.finished
    assert any("features of 499 of 499 stacks" in line for line in lines)
    first, second = (load_end_to_end(tmp_path / name / "best") for name in ("first", "run"))
    before, after = (learner.backbone.state_dict() for learner in (first, second))
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert second.backbone.note == first.backbone.note  # it has learned nothing more
    with pytest.raises(ValueError, match="cannot be mirrored"):
        predict_windows(second, FeatureCache(cache, second.backbone, folder, every=2), np.array([125]), flip=True)
    heads = [learner.anticipator.state_dict() for learner in (first, second)]
    assert not all(torch.equal(heads[0][key], heads[1][key]) for key in heads[0])
    assert 0 <= json.loads((tmp_path / "run/report.json").read_text())["anticipation"]["avg"] <= 1
    made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(made) == 3  # the training game, the same mirrored, and the validation game
    train(head_only(matches, folder, start, "train.seed=1"), tmp_path / "other", device=CPU)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made


def test_damaged_features_and_those_of_a_changed_video_are_made_again(tmp_path: Path) -> None:
    own = make_matches(tmp_path / "own", ("train",), frames=500)
    folder = tmp_path / "features"
    config = head_only(own, folder, "games.valid=[]", "train.epochs=1", "data.every_ms=1000", "augment.flip=0")
    train(config, tmp_path / "run", device=CPU)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    features = load_tensors(whole)["features"]
    faults = {
        "bit": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "cut": whole[:-100],
        "type": add_safetensors_checksum(save({"features": features.float()})),
        "foreign type": add_safetensors_checksum(save({"features": features.bfloat16()})),
        "size": add_safetensors_checksum(save({"features": features[1:].clone()})),
        "nan": add_safetensors_checksum(save({"features": features / 0})),
    }
    for name, damaged in faults.items():
        kept.write_bytes(damaged)
        train(config, tmp_path / name, device=CPU)
        assert kept.read_bytes() == whole, name
        assert contents(tmp_path / name) == contents(tmp_path / "run"), name
    video = next(own.glob("*.mp4"))
    os.utime(video, ns=(1, 1))
    train(config, tmp_path / "third", device=CPU)
    assert len(list(folder.iterdir())) == 2


def test_a_head_that_is_cut_anywhere_ends_with_the_same_bytes(
    matches: Path, tmp_path: Path, encoders: dict[bool, Path]
) -> None:
    start, often = f"encoder.start={encoders[False]}", "train.save_every=1"
    config = head_only(matches, tmp_path / "features", start, often, "train.ema=0.9", "augment.mixup=0.2")
    train(config, tmp_path / "whole", device=CPU)
    shutil.rmtree(tmp_path / "features")  # those of a resumed run are of its encoder, not of a new one
    for steps in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", device=CPU, show=cut_after(steps))
    shutil.rmtree(tmp_path / "features")
    train(config, tmp_path / "cut", device=CPU)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.clips=33", "set model.clips=62"),
        ("model.width=1280", "set model.width=16"),
        ("data.mixup=0.4", "set augment.mixup"),
        ("encoder.network.blocks=4", "frame encoder"),
        ("encoder.features=features", "set learns=false"),
        ("model.kind=faantra", "set model.faantra.clip_ms=80"),
    ],
)
def test_what_does_not_fit_is_one_sentence(matches: Path, tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(recipe(matches, override), tmp_path / "run", device=CPU)


def test_the_trained_model_reads_videos_by_itself(matches: Path, tmp_path: Path) -> None:
    """Its folder is enough: it names its encoder. The export forecasts the same."""
    train(recipe(matches, "train.epochs=1"), tmp_path / "run", device=CPU)
    video = next(matches.glob("*.mp4"))
    in_torch = list(ballcast.load(tmp_path / "run/best").video(video, every_ms=10_000, any_video=True))
    assert [made.at_ms for made in in_torch] == [5000, 15_000, 25_000, 35_000]
    export(str(tmp_path / "run/best"), None, tmp_path / "exported", video=video)
    in_onnx = list(ballcast.load(tmp_path / "exported").video(video, every_ms=10_000, any_video=True))
    for one, other in zip(in_torch, in_onnx, strict=True):
        assert [p.label for p in one.predictions] == [p.label for p in other.predictions]
        for a, b in zip(one.predictions, other.predictions, strict=True):
            np.testing.assert_allclose(a.scores, b.scores, rtol=1e-4, atol=1e-5)


def test_channels_last_leaves_3d_convolutions_as_they_are() -> None:
    network = nn.ModuleList([nn.Conv2d(4, 8, 3), nn.Conv3d(4, 8, 3), nn.Linear(4, 8)])
    to_channels_last(network)
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert network[1].weight.is_contiguous()

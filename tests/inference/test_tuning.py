"""Fitting a calibration: a known bias is found, nothing is learnt from nothing, the command line does all of it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import feeds
import numpy as np
import pytest
import torch
from synthetic import CLIPS, SMALL, WIDTH, make_clips, make_split
from synthetic import write_store as write_features
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction, grid_bin, merge_bins
from ballcast.data.events.event_grid import write_store
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.data.samples.batches import Samples
from ballcast.features.store import FeatureStore
from ballcast.inference.expected_precision import read_precision
from ballcast.inference.store_predictor import (
    by_clip,
    check_ensemble,
    emission,
    open_windows,
    predict_together,
    untuned,
)
from ballcast.inference.submission import read_submission
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.tuning import (
    TuningResult,
    choose,
    fit,
    run_emission,
    run_models,
    score_bins,
    scores_untuned,
)
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotProbabilities, select_times
from ballcast.model.score_mapping import Emission, ScoreMapping
from ballcast.model.slots import Slots
from tools.predict_store import predict_store

PASS, THROW_IN = 0, 4
LABELS = "Labels-ball.json"
WEIGHT = 2.5  # of the models' loss; not the default


def biased(count: int, *, late: int | np.ndarray, seed: int = 0) -> tuple[SlotProbabilities, list[Clip]]:
    """A slot a clip that knows its action, a pass or a throw in, but says throw ins `late` bins too early, sharply.

    `late` may be an array, one a clip. Half of the clips have nothing, of which the slot knows a little.
    """
    rng = np.random.default_rng(seed)
    real = rng.random(count) < 0.5
    kind = np.where(rng.random(count) < 0.5, PASS, THROW_IN)
    bins = rng.integers(8, 24, count)
    placed = bins - late * (kind == THROW_IN) + rng.integers(-3, 4, count)
    logits = rng.normal(0, 1, count) + 2 * real
    eye = np.eye(10, dtype=np.float32), np.eye(32, dtype=np.float32)
    clips = [
        Clip(f"clip_{i}", anticipation=(Event(ACTIONS[kind[i]], 30_080 + 160 * int(bins[i])),) if real[i] else ())
        for i in range(count)
    ]
    slots = SlotProbabilities(logits[:, None].astype(np.float32), eye[0][kind][:, None], eye[1][placed][:, None, None])
    return slots, clips


def flat(count: int) -> SlotProbabilities:
    """One slot a clip that knows nothing."""
    return SlotProbabilities(
        np.zeros((count, 1), np.float32),
        np.full((count, 1, 10), 0.1, np.float32),
        np.full((count, 1, 1, 32), 1 / 32, np.float32),
    )


def silence(clips: list[Clip]) -> np.ndarray:
    return np.zeros((len(clips), 32, 10), np.float32)


def test_a_shift_recovers_a_known_bias() -> None:
    outputs, clips = biased(800, late=2)
    fitted = fit([outputs], clips, silence(clips), pos_weight=1.0)
    shifts = [own.shift_ms for own in fitted.mapping.classes]
    assert shifts[THROW_IN] == 320
    assert shifts[PASS] <= 0
    assert fitted.helps
    assert fitted.outside_after > fitted.outside_before == 0
    new, held_out = biased(800, late=2, seed=1)
    unshifted = {label: replace(own, shift_ms=0) for label, own in fitted.mapping.actions.items()}
    right = score_bins(held_out, fitted.mapping.scores([new])).ap[:, THROW_IN].mean()
    wrong = score_bins(held_out, replace(fitted.mapping, actions=unshifted).scores([new])).ap[:, THROW_IN].mean()
    assert right > wrong + 0.02


def test_a_fold_is_scored_by_what_only_the_others_would_have_fitted() -> None:
    """Three folds want throw ins later and the last one earlier: whether it has a say decides."""
    folds, size, weight = 4, 100, 2.0
    outputs, clips = biased(folds * size, late=np.repeat([3, 3, 3, -3], size))
    before = ScoreMapping.untuned(weight).scores([outputs])
    fitted = fit([outputs], clips, before, pos_weight=weight, least=1)
    was, expected, shifts = [], [], []
    for f in range(folds):
        fold = np.arange(folds * size) // size == f
        inside = [clip for clip, own in zip(clips, fold, strict=True) if own]
        others = [clip for clip, own in zip(clips, fold, strict=True) if not own]
        of_others = fit([outputs[~fold]], others, silence(others), pos_weight=weight, folds=folds - 1, least=1)
        shifts.append(of_others.mapping.classes[THROW_IN].shift_ms)
        expected.append(score_bins(inside, of_others.mapping.scores([outputs[fold]])).avg)
        was.append(score_bins(inside, before[fold]).avg)
    assert shifts == [0, 0, 0, 480]
    assert fitted.outside_after == pytest.approx(np.mean(expected), rel=1e-12)
    assert fitted.outside_before == pytest.approx(np.mean(was), rel=1e-12)
    assert not fitted.helps
    own = fitted.mapping.classes[THROW_IN]
    assert (own.inflation, own.reach_ms, own.shift_ms) == (weight, 1280, 0)  # the folds do not agree


def test_a_class_of_few_events_keeps_the_untuned_choice() -> None:
    outputs, clips = biased(400, late=2)
    events = sum(e.label == "THROW IN" for clip in clips for e in clip.anticipation)
    for least, shift_ms in ((events, 320), (events + 1, 0)):
        fitted = fit([outputs], clips, silence(clips), pos_weight=3.0, least=least)
        own = fitted.mapping.classes[THROW_IN]
        assert own.shift_ms == shift_ms
        assert fitted.mapping.classes[PASS].inflation in (3.0, 1.5, 0.75)
    assert (own.inflation, own.reach_ms) == (3.0, 1280)


def test_nothing_is_learnt_from_outputs_that_are_always_the_same() -> None:
    _, clips = biased(200, late=0)
    same = flat(200)
    fitted = fit(
        [same], clips, fit([same], clips, silence(clips), pos_weight=1.0).mapping.scores([same]), pos_weight=1.0
    )
    assert abs(fitted.outside_after - fitted.outside_before) < 0.02


def emitted_throw_ins(count: int, *, early: int) -> tuple[Emission, list[Clip]]:
    """Each clip has one throw in; a model finds it `early` bins too early, and in every third clip below threshold."""
    bins = np.random.default_rng(0).integers(8, 24, count)
    every = np.zeros((count, 32, 10), np.float32)
    every[np.arange(count), bins - early, THROW_IN] = 0.5 + 0.4 * np.random.default_rng(1).random(count)
    every[::3] *= 0.1
    every[np.arange(count), 31, THROW_IN] = 0.01  # and a second one, which is wrong
    kept = np.where(every > 0.2, every, np.float32(0))
    return Emission(kept, every), [
        Clip(f"clip_{i}", anticipation=(Event("THROW IN", 30_080 + 160 * int(b)),)) for i, b in enumerate(bins)
    ]


def test_what_a_model_emits_is_shifted_and_no_clip_is_left_empty() -> None:
    own, clips = emitted_throw_ins(300, early=6)
    useless = flat(300)
    fitted = fit([useless], clips, own.kept, pos_weight=1.0, emission=own)
    mapping = fitted.mapping
    assert (mapping.times, mapping.fill) == ("emitted", 1)  # the second prediction of a clip is wrong
    assert [c.shift_ms for c in mapping.classes] == [480 if c == THROW_IN else 0 for c in range(10)]
    assert fitted.before.ap[0, THROW_IN] < 0.01  # found within ±500 ms, three bins
    assert fitted.after.ap[:, THROW_IN].min() > 0.99
    assert fitted.outside_after > fitted.outside_before
    without = score_bins(clips, replace(mapping, fill=0).scores((), own)).ap[-1, THROW_IN]
    assert without < 0.8  # a third of the clips is missing
    alone = fit([useless], clips, own.kept, pos_weight=1.0)  # an ensemble emits nothing of its own
    assert alone.mapping.times == "expected"


def test_the_better_times_are_taken() -> None:
    outputs, clips = biased(400, late=0)
    rng = np.random.default_rng(0)
    noise = rng.random((400, 32, 10)).astype(np.float32)
    assert fit([outputs], clips, noise, pos_weight=1.0, emission=Emission(noise, noise)).mapping.times == "expected"


def test_too_few_clips_are_one_sentence() -> None:
    outputs, clips = biased(3, late=0)
    with pytest.raises(InputError, match="4 or more labelled clips, here are 3"):
        fit([outputs], clips, silence(clips), pos_weight=1.0)


def worth(*choices: tuple[list[float], list[float]]) -> np.ndarray:
    """(choices, folds, 2): of each choice, the folds of the first class and those of the second."""
    return np.array(choices).transpose(0, 2, 1)


def test_a_class_has_its_own_choice_only_where_the_folds_agree() -> None:
    folds = worth(([0.3, 0.3, 0.3], [0.5, 0.5, 0.5]), ([0.4, 0.5, 0.45], [0.9, 0.2, 0.6]))
    assert choose(folds.mean(1), folds, np.array([True, True])).tolist() == [1, 0]  # + 0.1, 0.2, 0.15; + 0.4, −0.3, 0.1
    assert choose(folds.mean(1), folds, np.array([False, False])).tolist() == [0, 0]  # too few events to say so
    assert choose(folds.mean(1), folds[:, :1], np.array([True, True])).tolist() == [0, 0]  # one fold is no proof


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two models of the same features with random weights, and a store."""
    folder = tmp_path_factory.mktemp("tuned")
    recipe = load(Recipe, None, SMALL)
    for seed in (0, 1):
        torch.manual_seed(seed)
        Anticipator(recipe.model, metadata={"pos_weight": WEIGHT}).save_pretrained(folder / f"m{seed}")
    make_split(folder / "valid", 60, 3)
    return folder / "m0", folder / "m1", folder / "valid"


def test_an_ensemble_of_a_model_and_itself_is_the_model(tuned: tuple[Path, Path, Path]) -> None:
    first, second, valid = tuned
    store = FeatureStore.open(valid)
    clips = read_labels(valid / LABELS)
    windows = open_windows(store, clips, 6)
    one, other = (Anticipator.from_pretrained(folder) for folder in (first, second))
    assert one.emit.inflation == WEIGHT
    model, another = TorchRuntime(one), TorchRuntime(other)

    def together(*models: TorchRuntime) -> dict[str, tuple[Prediction, ...]]:
        return by_clip(predict_together(models, [windows] * len(models), untuned(models)))

    single = together(model)
    assert list(single) == [clip.name for clip in clips]
    assert together(model, model) == single
    assert together(model, another) != single
    outputs = run_models([model, another], [windows] * 2)
    undone, not_undone = (ScoreMapping.untuned(weight).raw(outputs) for weight in (WEIGHT, 1.0))
    assert np.array_equal(scores_untuned([one, other], outputs, run_emission([model, another], [windows] * 2)), undone)
    assert not np.array_equal(undone, not_undone)
    other.metadata["pos_weight"] = 4.0
    other.save_pretrained(valid.parent / "of_another_loss")
    with pytest.raises(InputError, match=r"of_another_loss: was trained with loss\.pos_weight 4, .* with 2\.5"):
        check_ensemble([one, other], [str(first), str(valid.parent / "of_another_loss")], [store])
    result = score(clips, single)
    arrays = score_bins(clips, untuned([one]).scores(run_models([model], [windows])))
    assert np.array_equal(result.ap, arrays.ap)


def ballcast(*args: object) -> str:
    """What the command prints, run in this process, since each new one loads torch first."""
    result = CliRunner().invoke(app, list(map(str, args)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tune_then_predict(tuned: tuple[Path, Path, Path], tmp_path: Path) -> None:
    first, _, valid = tuned
    source, there = ("--features", valid), first / "calibration.json"
    assert "in folds it was not fitted on" in ballcast("tune", first, *source, "--dry-run")
    assert not there.exists()
    assert not (first / "precision.json").exists()
    figures = re.search(r"([\d.]+) before, ([\d.]+) tuned", ballcast("tune", first, *source))
    assert figures is not None
    assert float(figures[2]) > float(figures[1])
    precision = read_precision(first)
    assert precision is not None
    assert (precision.samples, precision.fitted_on) == (60, "valid")
    assert precision.predictions > 0
    saved = json.loads(there.read_text())
    assert saved["figures"]["samples"] == 60
    assert "valid" in saved["fitted_on"]
    out = tmp_path / "tuned.json"
    assert "calibrated on valid" in ballcast("predict", *source, "--model", first, "-o", out)
    assert "calibrated" not in ballcast("predict", *source, "--model", first, "-o", tmp_path / "plain.json", "run=1")
    ballcast("eval", "--labels", valid / LABELS, "--predictions", out, "--json", tmp_path / "score.json")
    assert json.loads((tmp_path / "score.json").read_text())["avg"] == pytest.approx(saved["figures"]["after"])
    there.write_text("{")
    try:
        with pytest.raises(InputError, match=r"calibration\.json: line 1 .* ends too early"):
            ballcast("predict", *source, "--model", first, "-o", out)
    finally:
        there.unlink()


def test_a_calibration_that_does_nothing_changes_no_score_and_one_that_fills_leaves_no_clip_empty(
    tuned: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    first, _, valid = tuned
    model, cpu = Anticipator.from_pretrained(first), torch.device("cpu")
    middle = float(np.median([p.p_obj().max(1) for p in slots_of(model, valid)]))
    model.emit = replace(model.emit, threshold=middle)  # half of the clips stay empty
    store, clips = FeatureStore.open(valid), read_labels(valid / LABELS)
    windows = open_windows(store, clips, 6)
    plain = predict_store(model, store, clips, model.emit, cpu)
    empty = {name for name, made in plain.items() if not made}
    assert 0 < len(empty) < len(plain)
    nothing = by_clip(predict_together([TorchRuntime(model)], [windows], ScoreMapping(times="emitted")))
    assert np.array_equal(score(clips, merged(nothing)).ap, score(clips, merged(plain)).ap)
    for name, made in nothing.items():
        bins = {grid_bin(p.position_ms): p.scores for p in merge_bins(plain[name])}
        assert {grid_bin(p.position_ms): p.scores for p in made} == bins, name
    filled = by_clip(predict_together([TorchRuntime(model)], [windows], ScoreMapping(times="emitted", fill=1)))
    assert all(len(filled[name]) == 1 for name in empty)
    assert {name: made for name, made in filled.items() if name not in empty} == {
        name: made for name, made in nothing.items() if name not in empty
    }


def slots_of(model: Anticipator, valid: Path) -> list[Any]:
    windows = open_windows(FeatureStore.open(valid), read_labels(valid / LABELS), 6)
    with torch.inference_mode():
        return [slots.arrays() for slots in Samples(windows, torch.device("cpu"), "auto").run(model.eval())]


def merged(predictions: dict[str, list[Prediction]]) -> dict[str, Any]:
    return {name: merge_bins(made) for name, made in predictions.items()}


def test_a_slot_outside_the_horizon_fills_a_clip_at_its_end() -> None:
    """Scalar times may lie outside; the best slot is brought in, since no clip may stay empty."""
    classes = torch.zeros(1, 2, 10)
    classes[0, :, THROW_IN] = 5
    slots = Slots(torch.tensor([[2.0, 1.0]]), classes, torch.tensor([[1.2, -0.3]]), 32, form="fraction")
    own = emission(slots, EmitConfig())
    assert not own.kept.any()
    assert np.flatnonzero(own.every[0, :, THROW_IN]).tolist() == [0, 31]
    scores = ScoreMapping(times="emitted", fill=1).scores((), own)
    assert np.flatnonzero(scores[0].any(-1)).tolist() == [31]


@pytest.mark.parametrize("helps", [True, False])
def test_a_benchmarks_row_is_what_the_command_leaves(
    tuned: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helps: bool
) -> None:
    """Where a calibration does not help, nothing is written, and the model predicts as before."""
    from benchmarks import tuned as benchmark

    def fit_so(*args: Any, **how: Any) -> TuningResult:
        fitted = fit(*args, **how)
        return replace(fitted, outside_after=fitted.outside_before + (0.1 if helps else -0.1))

    monkeypatch.setattr(benchmark, "fit", fit_so)
    first, _, valid = tuned
    (tmp_path / "best").symlink_to(first)
    windows, cpu = open_windows(FeatureStore.open(valid), read_labels(valid / LABELS), 6), torch.device("cpu")
    (row,) = benchmark.tuned_rows([tmp_path], {"valid": windows, "test": windows}, cpu)["tuned"]
    model = TorchRuntime.load(first, device=cpu)
    outputs, emitted = run_models([model], [windows]), run_emission([model], [windows])
    before = scores_untuned([model], outputs, emitted)
    untouched = score_bins(windows.clips, before).avg
    calibrated = fit(outputs, windows.clips, before, pos_weight=WEIGHT, emission=emitted).after.avg
    assert calibrated != untouched
    assert row["valid"]["avg"] == row["test"]["avg"] == (calibrated if helps else untouched)


def test_a_store_of_event_feeds_is_tuned_on(tmp_path: Path) -> None:
    recipe = load(Recipe, None, [*SMALL, "model.clips=33", "model.width=18"])
    torch.manual_seed(0)
    Anticipator(recipe.model).save_pretrained(tmp_path / "model")
    write_store(tmp_path / "valid", [feeds.feed(feeds.made_up(600, 1), tmp_path)], 5000)
    source = "--features", tmp_path / "valid"
    before = ballcast("predict", *source, "--model", tmp_path / "model", "-o", tmp_path / "untuned.json")
    ballcast("tune", tmp_path / "model", *source)
    printed = ballcast("predict", *source, "--model", tmp_path / "model", "-o", tmp_path / "out.json")
    count = json.loads((tmp_path / "model" / "calibration.json").read_text())["figures"]["samples"]
    assert f"{count:.0f} clips" in printed
    assert f"{count:.0f} clips" in before  # windows, not matches
    # Weights that are written anew are others: the calibration goes with those it was fitted to.
    Anticipator(recipe.model).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "calibration.json").exists()
    assert Anticipator.from_pretrained(tmp_path / "model").score_mapping is None


def test_an_ensemble_is_tuned_and_predicts(tuned: tuple[Path, Path, Path], tmp_path: Path) -> None:
    first, second, valid = tuned
    source, out, file = ("--features", valid), ("-o", tmp_path / "out.json"), tmp_path / "both.json"
    both = "--model", first, "--model", second
    ballcast("tune", first, second, *source, "-o", file)
    assert "2 models, calibrated on valid" in ballcast("predict", *source, *both, "--calibration", file, *out)
    assert "2 models, not tuned" in ballcast("predict", *source, *both, *out)
    for args, words in (
        (("tune", first, second, *source), "--out"),
        (("predict", *source, *both, "run=6"), "run=6"),
        (("predict", "film.mp4", *both), "--features"),
        (("predict", *source, "--model", first, "--calibration", file), "other weights"),
    ):
        with pytest.raises(InputError, match=words):
            ballcast(*args)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of different encoders: other features, other snippets, other numbers of windows; a store for each."""
    folder = tmp_path_factory.mktemp("encoders")
    clips = make_clips(24, 3)
    sizes = {"a": (6, CLIPS, WIDTH), "b": (3, 7, 12)}  # windows, snippets, features
    for seed, (name, (windows, snippets, width)) in enumerate(sizes.items()):
        features = np.random.default_rng(seed).normal(0, 1, (24, 6, snippets, width)).astype(np.float16)
        write_features(folder / f"features-{name}", clips, features, backbone=f"encoder {name}")
        changes = [f"model.windows={windows}", f"model.clips={snippets}", f"model.width={width}"]
        torch.manual_seed(seed)
        about = {"pos_weight": WEIGHT, "backbone": {"hash": f"encoder {name}", "name": f"encoder {name}"}}
        Anticipator(load(Recipe, None, [*SMALL, *changes]).model, metadata=about).save_pretrained(folder / name)
    few = np.zeros((23, 6, 7, 12), np.float16)
    write_features(folder / "features-fewer", clips[1:], few, backbone="encoder b")
    return folder


def pairs(folder: Path, *stores: str, models: str = "ab") -> list[object]:
    """--features and --model by turns."""
    features = [("--features", folder / f"features-{store}") for store in stores]
    return [
        word
        for pair in zip(features, [("--model", folder / m) for m in models], strict=False)
        for w in pair
        for word in w
    ]


def test_models_of_two_encoders_are_averaged_each_from_its_own_store(encoders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert "24 clips" in ballcast("predict", *pairs(encoders, "a", "b"), "-o", out)
    outputs = []
    for name in "ab":
        store, model = FeatureStore.open(encoders / f"features-{name}"), Anticipator.from_pretrained(encoders / name)
        clips = read_labels(encoders / "features-a" / LABELS)
        outputs += run_models([TorchRuntime(model)], [open_windows(store, clips, model.config.windows)])
    mean = (outputs[0].intensity([WEIGHT] * 10) + outputs[1].intensity([WEIGHT] * 10)) / 2
    expected = score_bins(clips, select_times(mean, [1280] * 10, 8))
    assert np.allclose(score(clips, read_submission(out)).ap, expected.ap, atol=1e-6)
    alone = score_bins(clips, ScoreMapping.untuned(WEIGHT).scores(outputs[:1]))
    assert not np.allclose(alone.ap, expected.ap, atol=1e-3)


def test_two_encoders_are_tuned_together(encoders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuningResult, "helps", True)  # random weights: what is written is the question here
    file, out = tmp_path / "both.json", tmp_path / "out.json"
    stores = [word for name in "ab" for word in ("--features", encoders / f"features-{name}")]
    ballcast("tune", encoders / "a", encoders / "b", *stores, "-o", file)
    about = "2 models, calibrated on features-a, features by encoder a and encoder b"
    assert about in ballcast("predict", *pairs(encoders, "a", "b"), "--calibration", file, "-o", out)
    figures = json.loads(file.read_text())["figures"]
    ballcast("eval", "--labels", encoders / "features-a" / LABELS, "--predictions", out, "--json", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["avg"] == pytest.approx(figures["after"])


def test_stores_that_do_not_go_with_the_models_are_one_sentence(encoders: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out.json")
    three = [*pairs(encoders, "a", "b"), "--model", encoders / "a"]
    for args, words in (
        (
            pairs(encoders, "a", "fewer"),
            r"features-fewer: 23 clips, and .*features-a has 24; clip_1 is in one of them only",
        ),
        (pairs(encoders, "b", "a"), r"features-b: was made by the backbone encoder b .* reads 5 × 24"),
        (three, r"2 feature stores, but models: 3; give one --features for all models, or one for each"),
        (
            [*pairs(encoders, "a", models="a"), "--features", encoders / "features-b"],
            "2 feature stores, but models: 1; ",
        ),
    ):
        with pytest.raises(InputError, match=words):
            ballcast("predict", *args, *out)
    assert not (tmp_path / "out.json").exists()
    labels = tmp_path / LABELS
    write_labels(labels, make_clips(24, 3)[1:])
    assert "23 clips" in ballcast("predict", *pairs(encoders, "a", "fewer"), "--labels", labels, *out)

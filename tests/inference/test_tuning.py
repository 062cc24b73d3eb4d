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
from synthetic import SMALL, make_split
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.data.events.event_windows import write_store
from ballcast.data.labels.soccernet import read_labels
from ballcast.features.store import FeatureStore
from ballcast.inference.predictor import load_models, run_models, scores_untuned
from ballcast.inference.store_predictor import by_clip, forecast_together, open_windows, untuned
from ballcast.inference.torch_runtime import TorchModel
from ballcast.inference.tuning import TuningResult, choose, fit, score_scores
from ballcast.metrics.average_precision import score
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotProbabilities
from ballcast.model.score_mapping import ScoreMapping

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


def silence(clips: list[Clip]) -> np.ndarray:
    return np.zeros((len(clips), 32, 10), np.float32)


def test_a_shift_recovers_a_known_bias() -> None:
    outputs, clips = biased(800, late=2)
    fitted = fit([outputs], clips, silence(clips), pos_weight=1.0)
    shifts = [own.shift_ms for own in fitted.calibration.classes]
    assert shifts[THROW_IN] == 160  # the largest of the grid towards the 320 it is wrong by
    assert shifts[PASS] <= 0
    assert fitted.helps
    assert fitted.outside_after > fitted.outside_before == 0
    new, held_out = biased(800, late=2, seed=1)
    unshifted = {label: replace(own, shift_ms=0) for label, own in fitted.calibration.actions.items()}
    right = score_scores(held_out, fitted.calibration.scores([new])).ap[:, THROW_IN].mean()
    wrong = score_scores(held_out, replace(fitted.calibration, actions=unshifted).scores([new])).ap[:, THROW_IN].mean()
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
        shifts.append(of_others.calibration.classes[THROW_IN].shift_ms)
        expected.append(score_scores(inside, of_others.calibration.scores([outputs[fold]])).avg)
        was.append(score_scores(inside, before[fold]).avg)
    assert shifts == [0, 0, 0, 160]
    assert fitted.outside_after == pytest.approx(np.mean(expected), rel=1e-12)
    assert fitted.outside_before == pytest.approx(np.mean(was), rel=1e-12)
    assert not fitted.helps
    own = fitted.calibration.classes[THROW_IN]
    assert (own.inflation, own.reach_ms, own.shift_ms) == (weight, 1280, 0)  # the folds do not agree


def test_a_class_of_few_events_keeps_the_untuned_choice() -> None:
    outputs, clips = biased(400, late=2)
    events = sum(e.label == "THROW IN" for clip in clips for e in clip.anticipation)
    for least, shift_ms in ((events, 160), (events + 1, 0)):
        fitted = fit([outputs], clips, silence(clips), pos_weight=3.0, least=least)
        own = fitted.calibration.classes[THROW_IN]
        assert own.shift_ms == shift_ms
        assert fitted.calibration.classes[PASS].inflation in (3.0, 1.5, 0.75)
    assert (own.inflation, own.reach_ms) == (3.0, 1280)


def test_nothing_is_learnt_from_outputs_that_are_always_the_same() -> None:
    _, clips = biased(200, late=0)
    flat = SlotProbabilities(
        np.zeros((200, 1), np.float32), np.full((200, 1, 10), 0.1, np.float32), np.full((200, 1, 1, 32), 1 / 32)
    )
    fitted = fit(
        [flat], clips, fit([flat], clips, silence(clips), pos_weight=1.0).calibration.scores([flat]), pos_weight=1.0
    )
    assert abs(fitted.outside_after - fitted.outside_before) < 0.02


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
    store, cpu = FeatureStore.open(valid), torch.device("cpu")
    clips = read_labels(valid / LABELS)
    windows = open_windows(store, clips, 6)
    one, other = (Anticipator.from_pretrained(folder) for folder in (first, second))
    assert one.emit.inflation == WEIGHT
    model, another = TorchModel(one), TorchModel(other)

    def together(*models: TorchModel) -> dict[str, tuple[Prediction, ...]]:
        return by_clip(forecast_together(models, windows, untuned(models)))

    single = together(model)
    assert list(single) == [clip.name for clip in clips]
    assert together(model, model) == single
    assert together(model, another) != single
    outputs = run_models([one, other], windows, cpu)
    undone, not_undone = (ScoreMapping.untuned(weight).raw(outputs) for weight in (WEIGHT, 1.0))
    assert np.array_equal(scores_untuned([one, other], windows, cpu), undone)
    assert not np.array_equal(undone, not_undone)
    other.metadata["pos_weight"] = 4.0
    other.save_pretrained(valid.parent / "of_another_loss")
    with pytest.raises(InputError, match=r"of_another_loss: was trained with loss\.pos_weight 4, .* with 2\.5"):
        load_models([str(first), str(valid.parent / "of_another_loss")], store)
    result = score(clips, single)
    arrays = score_scores(clips, untuned([one]).scores(run_models([one], windows, cpu)))
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
    figures = re.search(r"([\d.]+) before, ([\d.]+) tuned", ballcast("tune", first, *source))
    assert figures is not None
    assert float(figures[2]) > float(figures[1])
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
    model = Anticipator.from_pretrained(first)
    before = scores_untuned([model], windows, cpu)
    untouched = score_scores(windows.clips, before).avg
    calibrated = fit(run_models([model], windows, cpu), windows.clips, before, pos_weight=WEIGHT).after.avg
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
    assert Anticipator.from_pretrained(tmp_path / "model").calibration is None


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

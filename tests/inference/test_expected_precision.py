"""Expected precision: what a model's predictions are worth, by action and confidence."""

from pathlib import Path

import numpy as np
import pytest

import ballcast
from ballcast.core.actions import ACTION_INDEX, ACTIONS
from ballcast.core.embedded import MODEL
from ballcast.core.errors import InputError
from ballcast.core.events import Event, Prediction
from ballcast.inference.expected_precision import (
    FILE_NAME,
    ExpectedPrecision,
    chance_within_5s,
    fit_precision,
    matched,
    read_precision,
    write_precision,
)
from ballcast.model.postprocess import SlotArrays


def test_of_one_time_an_event_counts_for_one_prediction() -> None:
    predictions = [Prediction("PASS", 1000, 0.4), Prediction("PASS", 1300, 0.6), Prediction("SHOT", 1200, 0.9)]
    event = Event("PASS", 1100)
    assert matched(predictions, [event], 1000) == [None, event, None]
    assert matched(predictions, [event], 150) == [event, None, None]


def test_precision_follows_the_hits_and_not_the_confidence() -> None:
    """Passes come as often as they are confident, shots never; both are predicted all the time."""
    samples = []
    for i in range(400):
        confidence = (i % 10) / 10 + 0.05
        came = (i // 10) % 10 < i % 10
        events = [Event("PASS", 1000)] if came else [Event("DRIVE", 4000)]
        samples.append(([Prediction("PASS", 1200, confidence), Prediction("SHOT", 2000, 0.9)], events))
    fitted = fit_precision(samples)
    assert fitted.of("SHOT", 0.9) < 0.02
    assert fitted.of("PASS", 0.95) == pytest.approx((36 + 5 * 0.225) / 45, abs=0.01)
    assert fitted.of("PASS", 0.2) == pytest.approx(0.15, abs=0.08)
    assert fitted.of("PASS", 0.2) < fitted.of("PASS", 0.5) < fitted.of("PASS", 0.9)
    assert fitted.of("CROSS", 0.9) == 0  # never seen
    assert 0.02 < fitted.default < 0.6  # without the shots, with the better passes
    assert (fitted.samples, fitted.predictions) == (400, 800)


def test_a_confidence_is_the_measured_frequency_and_the_score_stays() -> None:
    """Of the passes with a score of 0.8 a quarter come; some shot comes within 5 s in a tenth of the samples."""
    samples = []
    for i in range(1000):
        events = [Event("PASS", 1000)] * (i % 4 == 0) + [Event("SHOT", 4000)] * (i % 10 == 0)
        samples.append(([Prediction("PASS", 1200, 0.8)], events))
    chance = np.full((1000, len(ACTIONS)), 0.5, np.float32)
    measured = fit_precision(samples, chance)
    made, within_5s = measured.calibrate([Prediction("PASS", 61_000, 0.8), Prediction("SHOT", 62_000, 0.9)], chance[0])
    assert [p.confidence for p in made] == [pytest.approx(0.25, abs=0.001), 0]  # shots were never predicted
    assert [(p.label, p.position_ms, p.score) for p in made] == [("PASS", 61_000, 0.8), ("SHOT", 62_000, 0.9)]
    assert within_5s[ACTION_INDEX["PASS"]] == pytest.approx(0.25, abs=0.01)
    assert within_5s[ACTION_INDEX["SHOT"]] == pytest.approx(0.1, abs=0.01)
    assert within_5s[ACTION_INDEX["CROSS"]] < 0.03
    assert fit_precision(samples).calibrate(made, chance[0])[1] == ()  # not measured


def test_the_chance_within_5s_is_that_of_a_poisson_process() -> None:
    """Counts: 1 − exp(−expected). Slots: their probabilities add up to the expected number."""
    classes = np.full((1, 10, 10), -50, np.float32)
    classes[0, range(10), range(10)] = 50
    expected = np.linspace(0.1, 2, 10).astype(np.float32)
    counts = SlotArrays(np.log(np.expm1(expected))[None], classes, np.zeros((1, 10, 32), np.float32), 32, "counts")
    assert chance_within_5s(counts, 1.0)[0] == pytest.approx(1 - np.exp(-expected), abs=1e-5)
    two = np.full((1, 2, 10), -50, np.float32)
    two[:, :, 6] = 50
    slots = SlotArrays(np.zeros((1, 2), np.float32), two, np.zeros((1, 2, 32), np.float32), 32)
    assert chance_within_5s(slots, 1.0)[0, 6] == pytest.approx(1 - np.exp(-1.0), abs=1e-5)
    assert chance_within_5s(slots, 4.0)[0, 6] == pytest.approx(1 - np.exp(-2 * 0.2), abs=1e-5)


def test_few_hits_are_drawn_to_the_mean() -> None:
    sure = [([Prediction("CROSS", 1000, 0.5)], [Event("CROSS", 1000)])]
    never = [([Prediction("OUT", 1000, 0.5)], [Event("PASS", 1000)])] * 20
    fitted = fit_precision(sure + never)
    assert fitted.of("CROSS", 0.5) == pytest.approx((1 + 5 * 0.5) / 6, abs=1e-3)


def test_what_was_never_predicted_is_not_shown_at_first() -> None:
    """Every level up to the passes' own shows the same of the samples; the lowest would show everything else, too."""
    came = ([Prediction("PASS", 1000, 0.5)], [Event("PASS", 1000)])
    missed = ([Prediction("PASS", 1000, 0.5)], [Event("DRIVE", 1000)])
    fitted = fit_precision([came, missed] * 50)
    assert fitted.of("PASS", 0.5) == pytest.approx(0.5)
    assert fitted.default == 0.5
    assert fitted.of("SHOT", 0.9) < fitted.default


def test_it_belongs_to_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    curve = {"PASS": ((0.2, 0.1), (0.5, 0.4))}
    write_precision(tmp_path, ExpectedPrecision(curve, 0.3), "valid")
    again = read_precision(tmp_path)
    assert again is not None
    assert (again.actions, again.default, again.fitted_on) == (curve, 0.3, "valid")
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert read_precision(tmp_path) is None
    (tmp_path / FILE_NAME).write_text('{"format": "other"}')
    with pytest.raises(InputError, match="not an expected precision"):
        read_precision(tmp_path)


@pytest.mark.parametrize("curve", [((0.5, 0.4), (0.2, 0.5)), ((0.2, 0.4), (0.5, 0.3)), ((0.2, 1.4),)])
def test_a_curve_that_does_not_rise_is_refused(curve: tuple) -> None:
    with pytest.raises(InputError, match="not a rising curve"):
        ExpectedPrecision({"PASS": curve})


def test_the_embedded_model_was_measured() -> None:
    """After a change of its weights: `python -m tools.measure_precision`."""
    measured = ballcast.load().precision
    assert measured is not None
    assert read_precision(MODEL) == measured
    assert measured.predictions > 500
    assert 0 < measured.default < 0.5
    shown = [
        precision for curve in measured.actions.values() for _, precision in curve if precision >= measured.default
    ]
    assert min(shown) > 0.05  # nothing that is shown at first is nearly never right

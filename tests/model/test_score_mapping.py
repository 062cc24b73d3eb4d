"""Times and scores of a submission: peaks by hand, shifts, spread scores, and the file they are kept in."""

import json
from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.errors import InputError
from ballcast.core.events import grid_bin
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotProbabilities, mean_intensity, select_times, shift
from ballcast.model.score_mapping import (
    POSITIONS_MS,
    ClassScoreMapping,
    Emission,
    ScoreMapping,
    even_knots,
    fill_empty,
    read_score_mapping,
    write_score_mapping,
)
from ballcast.model.slots import Slots

PASS, DRIVE = 0, 1


def slot_probabilities(*slots: tuple[float, int, int]) -> SlotProbabilities:
    """One sample; a slot is (p_obj, class, bin), sure of both."""
    p, c, b = map(np.array, zip(*slots, strict=True))
    eye = np.eye(10, dtype=np.float32), np.eye(32, dtype=np.float32)
    return SlotProbabilities(np.log(p / (1 - p))[None].astype(np.float32), eye[0][c][None], eye[1][b][None, :, None])


def plain(**changes: object) -> ScoreMapping:
    own = ClassScoreMapping(inflation=1.0, reach_ms=160, **changes)  # type: ignore[arg-type]
    return ScoreMapping(peaks=1, actions=dict.fromkeys(ACTIONS, own))


def test_intensity_is_the_expected_number_of_actions() -> None:
    found = slot_probabilities((0.5, PASS, 3), (0.2, PASS, 3), (0.8, DRIVE, 9)).intensity([1.0] * 10)
    assert (found.shape, found.dtype) == ((10, 1, 32), np.float32)
    assert found[PASS, 0, 3] == pytest.approx(0.7)
    assert found[DRIVE, 0, 9] == pytest.approx(0.8)
    assert found.sum() == pytest.approx(1.5)


def test_inflation_is_undone_as_slots_do() -> None:
    found = slot_probabilities((0.8, PASS, 3)).intensity([4.0] * 10)
    assert found[PASS, 0, 3] == pytest.approx(0.5)  # odds 4 : 1, four times too high


def test_a_models_bins_are_laid_on_the_scorers() -> None:
    """Bin 20 of 32 is 3125 to 3281 ms: 75 ms in the scorer's bin 19 (to 3200), 81 ms in bin 20."""
    offsets = torch.full((1, 1, 32), -1e9)
    offsets[..., 20] = 0
    times = SlotProbabilities.from_slots(Slots(torch.zeros(1, 1), torch.zeros(1, 1, 10), offsets, 32)).times[0, 0, 0]
    assert times.dtype == np.float32
    assert times[19] == pytest.approx(75 / 156.25)
    assert times[20] == pytest.approx(81.25 / 156.25)
    assert times.sum() == pytest.approx(1)


def test_the_time_of_a_scalar_is_its_bin() -> None:
    slots = Slots(torch.zeros(1, 2), torch.zeros(1, 2, 10), torch.tensor([[0.5, 1.0]]), 32, form="fraction")
    assert SlotProbabilities.from_slots(slots).times[0, :, 0].argmax(-1).tolist() == [
        15,
        31,
    ]  # 2500 ms, and the last bin
    assert SlotProbabilities.from_slots(slots).times.dtype == np.float32


def test_times_of_each_class_are_read_apart() -> None:
    offsets = torch.full((1, 1, 10, 32), -1e9)
    offsets[0, 0, :, 4] = 0
    offsets[0, 0, DRIVE] = -1e9
    offsets[0, 0, DRIVE, 25] = 0
    slots = Slots(torch.zeros(1, 1), torch.zeros(1, 1, 10), offsets, 32, form="class bins")
    found = SlotProbabilities.from_slots(slots).intensity([1.0] * 10)
    assert found[PASS, 0].sum() == pytest.approx(0.05)  # p_obj a half, one class of ten
    assert found[DRIVE, 0, 20:].sum() == pytest.approx(0.05)
    assert found[PASS, 0, 20:].sum() == 0


def test_the_mean_of_two_models() -> None:
    together = mean_intensity([slot_probabilities((0.6, PASS, 3)), slot_probabilities((0.2, PASS, 3))], [1.0] * 10)
    assert together[PASS, 0, 3] == pytest.approx(0.4)


def test_peaks_by_hand() -> None:
    """0.4 and 0.2 two bins apart with a reach of two bins: each counts exp(−1/2) for the other."""
    intensity = np.zeros((1, 1, 32), np.float32)
    intensity[0, 0, [10, 12]] = 0.4, 0.2
    near, mid = exp(-0.5), exp(-1 / 8)
    mass = max(0.4 + 0.2 * near, 0.6 * mid)  # at bin 10, or between them at bin 11
    found = select_times(intensity, [320], 1)
    assert (found.shape, found.dtype) == ((1, 32, 1), np.float32)
    assert np.flatnonzero(found[0, :, 0]).tolist() == [11]
    assert found[0, 11, 0] == pytest.approx(1 - exp(-mass))


def test_the_second_time_is_what_the_first_leaves() -> None:
    intensity = np.zeros((1, 1, 32), np.float32)
    intensity[0, 0, [5, 25]] = 0.9, 0.3
    found = select_times(intensity, [160], 2)[0, :, 0]
    assert np.flatnonzero(found).tolist() == [5, 25]
    assert found[5] == pytest.approx(1 - exp(-0.9))
    assert found[25] == pytest.approx(1 - exp(-0.3))


def test_a_time_takes_away_one_action_at_most() -> None:
    """Of two actions expected in bin 10, 1 − exp(−2) is matched there; the rest is what the next bin finds."""
    intensity = np.zeros((1, 1, 32), np.float32)
    intensity[0, 0, 10] = 2.0
    found = select_times(intensity, [160], 2)[0, :, 0]
    assert np.flatnonzero(found).tolist() == [9, 10]
    assert found[10] == pytest.approx(1 - exp(-2))
    left = 2 - (1 - exp(-2))
    assert found[9] == pytest.approx(1 - exp(-exp(-0.5) * left))


def test_every_bin_has_a_position_of_its_own_within_the_horizon() -> None:
    """The last bin, 4960 to 5120 ms, is cut off at 5000."""
    assert grid_bin(POSITIONS_MS).tolist() == list(range(32))
    assert POSITIONS_MS.tolist()[:2] == [30_080, 30_240]
    assert POSITIONS_MS[-1] == 34_980


def test_every_further_time_scores_no_higher() -> None:
    intensity = np.random.default_rng(0).random((2, 20, 32)).astype(np.float32)
    few, many = (select_times(intensity, [1280, 640], count) for count in (3, 8))
    assert ((few > 0).sum(1) == 3).all()
    assert ((many > 0).sum(1) == 8).all()
    assert (np.where(few > 0, 0, many).max(1) <= np.where(few > 0, few, 1).min(1)).all()


def test_a_shift_stays_within_the_horizon() -> None:
    scores = np.zeros((1, 32), np.float32)
    scores[0, [0, 1, 30]] = 0.1, 0.9, 0.5
    assert np.flatnonzero(shift(scores, 3)[0]).tolist() == [3, 4, 31]
    back = shift(scores, -2)
    assert np.flatnonzero(back[0]).tolist() == [0, 28]
    assert back[0, 0] == pytest.approx(0.9)  # two in a bin: the better one


def test_a_class_is_shifted_independently() -> None:
    calibration = replace(plain(), actions={**plain().actions, "DRIVE": ClassScoreMapping(1.0, 160, 320)})
    (predictions,) = calibration.predict([slot_probabilities((0.5, PASS, 3), (0.9, DRIVE, 3))])
    position_ms = {p.label: p.position_ms for p in predictions if p.confidence > 0.1}
    assert position_ms == {"PASS": POSITIONS_MS[3], "DRIVE": POSITIONS_MS[5]} == {"PASS": 30560, "DRIVE": 30880}


def test_without_knots_scores_are_the_probability_of_a_match() -> None:
    scores = plain().scores([slot_probabilities((0.5, PASS, 3))])
    assert scores[0, 3, PASS] == pytest.approx(1 - exp(-0.5))


@given(
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=60),
    st.lists(st.just(0.0) | st.floats(1e-9, 1), min_size=2, max_size=30),
)
def test_spreading_keeps_the_order(seen: list[float], new: list[float]) -> None:
    own = ClassScoreMapping(knots=even_knots(np.array(seen)))
    scores = np.sort(np.array(new))
    spread = own.spread(scores.astype(np.float32))
    assert (np.diff(spread) >= 0).all()
    assert spread.min() >= 0
    assert spread.max() <= 1
    assert ((spread == 0) == (scores.astype(np.float32) == 0)).all()


def test_spreading_parts_scores_that_tie() -> None:
    """A hundred scores within one step of the scorer's thresholds come to lie on many."""
    scores = np.linspace(0.0011, 0.0049, 100).astype(np.float32)
    spread = ClassScoreMapping(knots=even_knots(scores)).spread(scores)
    assert len(set(np.digitize(scores, np.linspace(0, 1, 200)))) == 1
    assert len(set(np.digitize(spread, np.linspace(0, 1, 200)))) > 50


def test_nothing_seen_spreads_nothing() -> None:
    assert even_knots(np.zeros(5)) == even_knots(np.array([0.0, 0.3])) == even_knots(np.full(9, 0.3)) == ()
    scores = np.array([0.1, 0.7], np.float32)
    assert ClassScoreMapping().spread(scores) is scores


def test_a_sample_without_predictions_gets_its_best_ones() -> None:
    every = np.zeros((2, 32, 10), np.float32)
    every[0, 4, PASS], every[0, 9, DRIVE], every[0, 9, PASS], every[0, 20, PASS] = 0.2, 0.3, 0.1, 0.05
    every[1, 7, PASS] = 0.9
    kept = np.where(every > 0.5, every, np.float32(0))
    one, two = (fill_empty(kept, every, count) for count in (1, 2))
    assert one[0].nonzero() == pytest.approx(np.array([[9, 9], [PASS, DRIVE]]))  # the whole bin
    assert np.flatnonzero(two[0].any(-1)).tolist() == [4, 9]
    assert np.array_equal(one[1], kept[1])
    assert fill_empty(kept, every, 0) is kept


def test_emitted_times_are_shifted_filled_and_spread_by_hand() -> None:
    every = np.zeros((2, 32, 10), np.float32)
    every[0, 4, PASS], every[0, 4, DRIVE], every[1, 30, PASS] = 0.5, 0.4, 0.1
    kept = np.where(every > 0.3, every, np.float32(0))
    actions = {"PASS": ClassScoreMapping(shift_ms=320, knots=(0.2, 0.6)), "DRIVE": ClassScoreMapping(shift_ms=-160)}
    scores = ScoreMapping(times="emitted", fill=1, actions=actions).scores((), Emission(kept, every))
    found = {(int(n), int(b), int(c)): scores[n, b, c] for n, b, c in np.argwhere(scores)}
    # 0.5 is three quarters of the way from knot 0.2 (0.005) to 0.6 (0.99), 0.1 half of the way to the first knot.
    assert found == pytest.approx({(0, 6, PASS): 0.74375, (0, 3, DRIVE): 0.4, (1, 31, PASS): 0.0025})


samples = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).random((4, 32, 10), np.float32))


@given(samples, st.floats(0, 1))
def test_no_shift_no_knots_and_no_filling_change_nothing(every: np.ndarray, threshold: float) -> None:
    kept = np.where(every > threshold, every, np.float32(0))
    assert np.array_equal(ScoreMapping(times="emitted").scores((), Emission(kept, every)), kept)


@given(samples, st.floats(0.99, 1), st.integers(1, 4), st.integers(-31, 31))
def test_filling_leaves_no_sample_empty_and_others_alone(
    every: np.ndarray, threshold: float, fill: int, bins: int
) -> None:
    kept = np.where(every > threshold, every, np.float32(0))
    mapping = ScoreMapping(times="emitted", actions=dict.fromkeys(ACTIONS, ClassScoreMapping(shift_ms=160 * bins)))
    unfilled, filled = (replace(mapping, fill=n).scores((), Emission(kept, every)) for n in (0, fill))
    empty = ~kept.any((1, 2))
    assert np.array_equal(filled[~empty], unfilled[~empty])
    assert (filled[empty].any(-1).sum(-1) <= fill).all()
    assert (filled[empty].any(-1).sum(-1) >= 1).all()


def test_a_calibration_of_version_0_1_is_read(tmp_path: Path) -> None:
    tree = {"format": "ballcast-calibration-1", "peaks": 8, "actions": {"SHOT": {"shift_ms": 160}}, "weights": ["a"]}
    (tmp_path / "c.json").write_text(json.dumps(tree))
    mapping = read_score_mapping(tmp_path / "c.json", ["a"])
    assert (mapping.times, mapping.fill, mapping.actions["SHOT"].shift_ms) == ("expected", 0, 160)


def test_saved_and_read_again(tmp_path: Path) -> None:
    calibration = ScoreMapping(
        actions={"SHOT": ClassScoreMapping(2.0, 960, -160, (0.1, 0.25))}, weights=("a",), figures={"after": 0.2}
    )
    write_score_mapping(tmp_path / "c.json", calibration)
    assert read_score_mapping(tmp_path / "c.json", ["a"]) == calibration


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peaks": 0}, "peaks 0"),
        ({"fill": -1}, "fill -1"),
        ({"times": "told"}, "times"),
        ({"times": "emitted", "weights": ["a", "b"]}, "of one model"),
        ({"peak": 3}, "did you mean 'peaks'"),
        ({"format": "other"}, "not a calibration"),
        ({"actions": {"SHOT": {"shift_ms": 100}}}, "shift_ms 100"),
        ({"actions": {"SHOT": {"inflation": 0}}}, "inflation"),
        ({"actions": {"SHOT": {"knots": [0.5, 0.5]}}}, "knots"),
        ({"actions": {"SHOT": {"knots": [0.0, 0.5]}}}, "knots"),
        ({"actions": {"SHOT": {"knots": [0.1, None]}}}, "knots"),
        ({"actions": {"SHOTS": {}}}, "SHOTS"),
        ({"weights": ["b"]}, "other weights"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"format": "ballcast-calibration-1", "weights": ["a"], **changes}))
    with pytest.raises(InputError) as error:
        read_score_mapping(path, ["a"])
    assert str(path) in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_folder_carries_its_calibration(tmp_path: Path, tiny: ModelConfig) -> None:
    model = Anticipator(tiny)
    model.save_pretrained(tmp_path / "a")
    assert Anticipator.from_pretrained(tmp_path / "a").score_mapping is None
    model.score_mapping = plain()
    model.save_pretrained(tmp_path / "b")
    again = Anticipator.from_pretrained(tmp_path / "b")
    assert again.score_mapping is not None
    assert again.score_mapping.actions == plain().actions
    again.save_pretrained(tmp_path / "c")  # as push_to_hub does
    assert Anticipator.from_pretrained(tmp_path / "c").score_mapping == again.score_mapping


def test_other_weights_refuse_it(tmp_path: Path, tiny: ModelConfig) -> None:
    model = Anticipator(tiny)
    model.score_mapping = plain()
    model.save_pretrained(tmp_path)
    Anticipator(tiny).save_pretrained(tmp_path / "other")
    for file in ("model.safetensors", "config.json"):  # copied over it: the calibration beside them is of the past
        (tmp_path / file).write_bytes((tmp_path / "other" / file).read_bytes())
    with pytest.raises(InputError, match=r"other weights than these; run `ballcast tune` again"):
        Anticipator.from_pretrained(tmp_path)


def test_samples_are_chosen_and_joined() -> None:
    one, two = slot_probabilities((0.5, PASS, 3)), replace(slot_probabilities((0.25, DRIVE, 9)), counts=True)
    three = replace(slot_probabilities((0.75, DRIVE, 20)), counts=True)
    joined = SlotProbabilities.join([two, one, three])
    assert len(joined) == 3
    assert joined.counts  # as in the first part
    assert not SlotProbabilities.join([one, two]).counts
    assert joined.objectness.tolist() == [
        *two.objectness.tolist(),
        *one.objectness.tolist(),
        *three.objectness.tolist(),
    ]
    assert joined.classes.argmax(-1).tolist() == [[DRIVE], [PASS], [DRIVE]]
    assert joined.times.argmax(-1).tolist() == [[[9]], [[3]], [[20]]]
    chosen = joined[np.array([False, True, True])]
    assert chosen.counts
    assert chosen.classes.argmax(-1).tolist() == [[PASS], [DRIVE]]
    assert chosen.objectness.tolist() == joined.objectness[1:].tolist()
    assert joined[:1].times.argmax(-1).tolist() == [[[9]]]


def test_counts_expect_the_softplus_of_their_logit() -> None:
    """A class expects log(1 + e^x) actions; an inflation of e³ takes 3 from x."""
    at = slot_probabilities((0.5, PASS, 3))
    counts = SlotProbabilities(np.array([[2.0]], np.float32), at.classes, at.times, counts=True)
    assert counts.intensity([1.0] * 10)[PASS, 0, 3] == pytest.approx(np.log(1 + exp(2)))
    assert counts.intensity([exp(3)] * 10)[PASS, 0, 3] == pytest.approx(np.log(1 + exp(-1)))
    assert SlotProbabilities.from_slots(
        Slots(torch.zeros(1, 10), torch.zeros(1, 10, 10), torch.zeros(1, 10, 32), 32, form="counts")
    ).counts


def test_the_first_samples_of_arrays() -> None:
    given = Slots(torch.arange(3.0)[:, None], torch.randn(3, 1, 10), torch.randn(3, 1, 32), 32, form="counts").arrays()
    two = given[:2]
    assert (two.bins, two.form) == (32, "counts")
    assert two.objectness.tolist() == [[0.0], [1.0]]
    assert np.array_equal(two.classes, given.classes[:2])
    assert np.array_equal(two.offsets, given.offsets[:2])


def test_a_scalar_far_outside_the_horizon_is_nowhere() -> None:
    """1.5 of the horizon is 7500 ms, bin 46 of 32; −0.5 would be bin −15."""
    slots = Slots(torch.zeros(1, 2), torch.zeros(1, 2, 10), torch.tensor([[1.5, -0.5]]), 32, form="fraction")
    assert not SlotProbabilities.from_slots(slots).times.any()

"""Intervals of the score: hand-worked, equal to the score of clips written out, paired, and quick to refuse."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.metrics import bootstrap as module
from ballcast.metrics.average_precision import TOLERANCES, match_all, match_by_visibility, score, score_of_matches
from ballcast.metrics.bootstrap import Intervals, bootstrap, bootstrap_matches, difference

Predicted = dict[str, list[Prediction]]


def paired_bootstrap(
    clips: list[Clip],
    first: dict[str, Any],
    second: dict[str, Any],
    **options: Any,
) -> Intervals:
    """Intervals of the difference second − first on the same resamples; options as in `bootstrap`."""
    return difference(bootstrap(clips, first, **options), bootstrap(clips, second, **options))


def make(clips: int = 60, seed: int = 0) -> tuple[list[Clip], Predicted]:
    rng = np.random.default_rng(seed)
    labelled, predicted = [], {}
    for i in range(clips):
        events = [
            Event(ACTIONS[rng.integers(4)], int(t), visible=bool(rng.random() < 0.7))
            for t in rng.integers(30_000, 35_000, rng.poisson(2))
        ]
        labelled.append(Clip(f"clip_{i}", (), tuple(events)))
        predicted[f"clip_{i}"] = [
            Prediction.from_scores(int(t), rng.random(10).tolist()) for t in rng.integers(30_000, 35_000, 3)
        ]
    return labelled, predicted


def written_out(clips: list[Clip], predicted: Predicted, weights: np.ndarray) -> tuple[list[Clip], Predicted]:
    """Each clip as often as its weight says, under names of their own."""
    copies = [(clip, f"{clip.name} {n}") for clip, weight in zip(clips, weights, strict=True) for n in range(weight)]
    return (
        [Clip(name, (), clip.anticipation) for clip, name in copies],
        {name: predicted[clip.name] for clip, name in copies},
    )


def resampled(clips: list[Clip], predicted: Predicted, weights: np.ndarray) -> np.ndarray:
    matches = match_all(clips, predicted)
    return np.stack(list(module._resampled_ap(matches, np.arange(len(clips)), weights)), -1)


def test_every_clip_once_is_the_score_exactly() -> None:
    clips, predicted = make()
    ones = np.ones((1, len(clips)), np.int64)
    np.testing.assert_array_equal(resampled(clips, predicted, ones)[0], score(clips, predicted).ap)
    for name, matches in match_by_visibility(clips, predicted).items():
        ap = np.stack(list(module._resampled_ap(matches, np.arange(len(clips)), ones)), -1)[0]
        np.testing.assert_array_equal(ap, score_of_matches(match_by_visibility(clips, predicted)[name]).ap)


@pytest.mark.parametrize("together", [7, 4096])
def test_a_resample_is_the_score_of_its_clips_written_out(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(module, "GROUPS_TOGETHER", together)
    clips, predicted = make()
    weights = module._draw(np.random.default_rng(1), 5, len(clips))
    assert weights.sum(1).tolist() == [len(clips)] * 5
    for ap, own in zip(resampled(clips, predicted, weights), weights, strict=True):
        np.testing.assert_array_equal(ap, score(*written_out(clips, predicted, own)).ap)


def test_hand_worked() -> None:
    """Two clips with a shot each, found only in the first: of the three possible resamples

    - the first twice: recall 1 at precision 1, AP 1;
    - each once: recall 0.5 at precision 1, so recalls 0 … 0.5 read 1, AP 6/11;
    - the second twice: nothing is found, AP 0.

    They come with probability 1/4, 1/2 and 1/4: the interval is from 0 to 1, the mean 1/4 + 6/22.
    """
    clips = [Clip("a", (), (Event("SHOT", 31_000),)), Clip("b", (), (Event("SHOT", 31_000),))]
    found = bootstrap(clips, {"a": [Prediction("SHOT", 31_000, 0.9)], "b": []}, resamples=4000)
    shot = found.resampled[:, :, ACTIONS.index("SHOT")]
    assert np.unique(shot).tolist() == pytest.approx([0, 6 / 11, 1])
    assert (shot[:, 0] == 1).mean() == pytest.approx(1 / 4, abs=0.03)
    assert shot.mean() == pytest.approx(1 / 4 + 3 / 11, abs=0.03)
    assert found.ap[:, ACTIONS.index("SHOT")] == pytest.approx(6 / 11)
    assert found.class_avg[:, ACTIONS.index("SHOT")].tolist() == [0, 1]
    assert found.avg.tolist() == pytest.approx([0, 0.1])  # nine classes without events count 0
    assert found.at.T.tolist() == [pytest.approx([0, 0.1])] * 6


def test_quantiles_are_those_of_the_resamples() -> None:
    clips, predicted = make()
    found = bootstrap(clips, predicted, resamples=201)
    ordered = np.sort(found.resampled.mean((1, 2)))
    assert found.avg.tolist() == pytest.approx([ordered[5], ordered[195]])  # 2.5 % and 97.5 % of 200 steps
    assert found.avg[0] < score(clips, predicted).avg < found.avg[1]
    assert found.per_class.shape == (2, 6, 10)


def test_the_same_seed_gives_the_same_and_another_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clips, predicted = make()
    first = bootstrap(clips, predicted, resamples=100)
    np.testing.assert_array_equal(first.resampled, bootstrap(clips, predicted, resamples=100).resampled)
    assert (first.resampled != bootstrap(clips, predicted, resamples=100, seed=1).resampled).any()
    monkeypatch.setattr(module, "TOGETHER", 30)
    steps: list[tuple[int, int]] = []
    parts = bootstrap(clips, predicted, resamples=100, progress=lambda *step: steps.append(step))
    np.testing.assert_array_equal(first.resampled, parts.resampled)
    assert steps == [(i + 1, 40) for i in range(40)]


def test_large_counts_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what float32 holds exactly, sums are doubles."""
    clips, predicted = make(20)
    found = bootstrap(clips, predicted, resamples=100)
    monkeypatch.setattr(module, "EXACT_FLOAT32", 0)
    np.testing.assert_array_equal(found.resampled, bootstrap(clips, predicted, resamples=100).resampled)


def test_a_pair_is_compared_on_the_same_resamples() -> None:
    clips, predicted = make()
    weaker = {name: entries[:1] for name, entries in predicted.items()}
    pair = paired_bootstrap(clips, weaker, predicted, resamples=200, seed=3)
    one, two = (bootstrap(clips, p, resamples=200, seed=3) for p in (weaker, predicted))
    np.testing.assert_array_equal(pair.resampled, two.resampled - one.resampled)
    assert pair.ap.mean() == pytest.approx(score(clips, predicted).avg - score(clips, weaker).avg)
    same = paired_bootstrap(clips, predicted, predicted, resamples=100)
    assert same.avg.tolist() == [0, 0]
    assert same.above_zero == 0
    assert paired_bootstrap(clips, dict.fromkeys(predicted, ()), predicted, resamples=100).above_zero == 1
    with pytest.raises(ValueError, match="different resamples"):
        difference(one, bootstrap(clips, predicted, resamples=200, seed=4))


def test_groups_are_resampled_whole() -> None:
    """Three matches of 20 clips: a resample is one of the 10 ways to draw three of them."""
    clips, predicted = make()
    match = [i // 20 for i in range(60)]
    found = bootstrap(clips, predicted, resamples=300, groups=[f"match {m}" for m in match])
    assert found.groups == 3
    assert len(np.unique(found.resampled.mean((1, 2)).round(12))) == 10
    possible = {
        round(score(*written_out(clips, predicted, np.bincount(drawn, minlength=3)[match])).avg, 12)
        for drawn in ([0, 0, 1], [0, 1, 2], [2, 2, 2])
    }
    assert possible <= set(found.resampled.mean(2).mean(1).round(12).tolist())


def test_json_has_the_names_of_the_score() -> None:
    clips, predicted = make()
    found, plain = bootstrap(clips, predicted, resamples=100, seed=5).as_dict(), score(clips, predicted).as_dict()
    assert found.keys() - plain.keys() == {"level", "resamples", "groups", "seed"}
    assert (found["level"], found["resamples"], found["groups"], found["seed"]) == (0.95, 100, 60, 5)
    assert all(len(found[key]) == 2 for key in plain.keys() - {"per_class"})
    assert np.shape(found["per_class"]["at1"]) == (10, 2)
    pair = paired_bootstrap(clips, predicted, predicted, resamples=100).difference_dict()
    assert pair.keys() == {*plain.keys(), "above_zero", "intervals"}


def test_what_gives_no_interval_is_refused() -> None:
    clips, predicted = make(3)
    with pytest.raises(InputError, match="99 resamples give no 95 % interval; take at least 100"):
        bootstrap(clips, predicted, resamples=99)
    with pytest.raises(InputError, match="there is only 1; it takes two or more"):
        bootstrap(clips[:1], predicted)
    with pytest.raises(InputError, match="there is only 1"):
        bootstrap(clips, predicted, groups=["one match"] * 3)
    with pytest.raises(ValueError, match="2 group ids for 3 clips"):
        bootstrap(clips, predicted, groups=[0, 1])
    matches = match_all([], {})
    with pytest.raises(InputError, match="there is only 0"):
        bootstrap_matches(matches, 0)


def test_a_difference_in_json() -> None:
    clips, predicted = make(12)
    weaker = {name: entries[:1] for name, entries in predicted.items()}
    found = paired_bootstrap(clips, weaker, predicted, resamples=100, seed=3, groups=[i // 2 for i in range(12)])
    assert (found.groups, found.seed) == (6, 3)
    one, two = score(clips, weaker), score(clips, predicted)
    tree = found.difference_dict()
    assert tree["avg"] == pytest.approx(two.avg - one.avg)
    assert [tree[name] for name in TOLERANCES] == pytest.approx([two.at[name] - one.at[name] for name in TOLERANCES])
    assert tree["per_class"]["at2"] == pytest.approx((two.ap - one.ap)[1].tolist())
    assert tree["above_zero"] == float((found.resampled.mean((1, 2)) > 0).mean())
    intervals = tree["intervals"]
    assert (intervals["groups"], intervals["seed"], intervals["resamples"]) == (6, 3, 100)
    ends = np.quantile(found.resampled, [0.025, 0.975], axis=0)  # (2, 6, 10)
    assert intervals["per_class"]["at3"] == pytest.approx(ends[:, 2].T)
    assert intervals["at3"] == pytest.approx(np.quantile(found.resampled[:, 2].mean(1), [0.025, 0.975]).tolist())
    assert intervals["avg"] == pytest.approx(np.quantile(found.resampled.mean((1, 2)), [0.025, 0.975]).tolist())
    for other in (replace(found, groups=5), replace(found, seed=4), replace(found, resampled=found.resampled[:50])):
        with pytest.raises(ValueError, match=r"^the two have different resamples; use the same clips, resamples, seed"):
            difference(found, other)


def test_it_is_of_the_score_that_was_asked_for() -> None:
    clips, predicted = make(12)
    options: list[dict[str, Any]] = [{"exact": True}, {"read": "label"}, {}]
    found = [bootstrap(clips, predicted, resamples=100, **o).ap for o in options]
    for own, o in zip(found, options, strict=True):
        np.testing.assert_array_equal(own, score(clips, predicted, **o).ap)
    assert len({ap.mean() for ap in found}) == 3

"""The event transformer's training: targets as the grid's, a step that learns, teachers, and what is hidden."""

from pathlib import Path

import numpy as np
import pytest
import torch
from feeds import feed, made_up

from ballcast.core.event_schema import DETAILS
from ballcast.data.events.event_grid import compute_targets
from ballcast.data.events.event_tokens import PERIOD_MS
from ballcast.model.event_transformer import EventTransformer, EventTransformerConfig, decode_slots
from ballcast.training.feed_training import (
    FeedDataset,
    FeedTrainConfig,
    FeedTrainer,
    criterion,
    distillation,
    random_flags,
    targets_after,
)

SMALL = EventTransformerConfig(dim=32, heads=2, layers=1, ffn=32, dropout=0.0)
CPU = torch.device("cpu")


@pytest.fixture
def feeds(tmp_path: Path) -> FeedDataset:
    return FeedDataset.from_feeds([feed(made_up(120, seed), tmp_path) for seed in (0, 1)], CPU)


def test_targets_are_those_of_the_grid(tmp_path: Path) -> None:
    matches = [feed(made_up(120, seed), tmp_path) for seed in (0, 1)]
    feeds = FeedDataset.from_feeds(matches, CPU)
    for number, half in enumerate(matches):
        at = np.concatenate([np.arange(6000, half.t_ms.max() - 5000, 333), half.t_ms[half.t_ms > 6000]])
        wanted = compute_targets(half, at)
        got = targets_after(feeds, torch.from_numpy(at + number * PERIOD_MS), 8)
        np.testing.assert_array_equal(got.classes.numpy(), wanted.classes)
        real = wanted.classes >= 0
        bins = (wanted.position_ms - 30_000) * 25 // 4000
        np.testing.assert_array_equal(got.bins.numpy()[real], bins[real])
        np.testing.assert_array_equal(got.counts.sum((1, 2)).numpy(), real.sum(1))


def test_times_are_drawn_within_the_periods(feeds: FeedDataset) -> None:
    torch.manual_seed(0)
    at = feeds.draw(2000)
    period, ms = at // PERIOD_MS, at % PERIOD_MS
    assert set(period.tolist()) == {0, 1}
    for number in (0, 1):
        own = feeds.table.clock // PERIOD_MS == number
        last = int((feeds.table.clock[own] % PERIOD_MS).max())
        assert 5000 <= int(ms[period == number].min()) < int(ms[period == number].max()) < last - 5000 + 1


def test_it_learns_and_goes_on_from_weights(feeds: FeedDataset) -> None:
    how = FeedTrainConfig(seconds=600, steps=60, batch=64, lr=5e-3, ema=0.8, plain=0.3, warmup=0.1)
    trainer = FeedTrainer(feeds, SMALL, how)
    seen: list[float] = []
    assert trainer.run(lambda share, step: seen.append(share), (0.5,)) == 60
    assert seen == [0.5]
    at = feeds.draw(256)
    fresh = EventTransformer(SMALL)
    assert _loss(trainer.average, feeds, at) < 0.9 * _loss(fresh, feeds, at)
    again = FeedTrainer(feeds, SMALL, how)
    again.start(trainer.average.state_dict())
    assert _loss(again.model, feeds, at) == pytest.approx(_loss(trainer.average, feeds, at), rel=1e-5)


def _loss(model: EventTransformer, feeds: FeedDataset, at: torch.Tensor) -> float:
    from ballcast.data.events.event_tokens import tokens_before

    with torch.no_grad():
        slots = model.eval()(*tokens_before(torch, feeds.table, at), torch.ones(len(at), len(DETAILS)))
        return float(criterion(slots, targets_after(feeds, at, 8), FeedTrainConfig(), feeds.rates))


def test_a_student_equal_to_its_teacher_is_at_the_minimum(feeds: FeedDataset) -> None:
    from ballcast.data.events.event_tokens import tokens_before

    torch.manual_seed(0)
    teacher, other = EventTransformer(SMALL).eval(), EventTransformer(SMALL).eval()
    at = feeds.draw(32)
    given = (*tokens_before(torch, feeds.table, at), torch.ones(32, len(DETAILS)))
    with torch.no_grad():
        taught = teacher(*given)
        assert distillation(taught, [taught]) < distillation(other(*given), [taught])


def test_padding_can_be_left_out(feeds: FeedDataset) -> None:
    from ballcast.data.events.event_tokens import tokens_before

    model = EventTransformer(SMALL).eval()
    codes, values = tokens_before(torch, feeds.table, torch.tensor([9_000]))
    kept = int((codes[0, :, 0] != 11).sum()) + 1
    assert 1 < kept < codes.shape[1]
    with torch.no_grad():
        whole = decode_slots(model(codes, values, torch.ones(1, len(DETAILS))))
        short = decode_slots(model(codes[:, -kept:], values[:, -kept:], torch.ones(1, len(DETAILS))))
    for one, two in zip(whole, short, strict=True):
        torch.testing.assert_close(one, two)


def test_expectations_agree_with_each_other(feeds: FeedDataset) -> None:
    from ballcast.data.events.event_tokens import tokens_before

    model = EventTransformer(SMALL).eval()
    with torch.no_grad():
        at = feeds.draw(16)
        intensity, chance, zones = decode_slots(
            model(*tokens_before(torch, feeds.table, at), torch.ones(16, len(DETAILS)))
        )
    assert (chance[..., 1:] >= chance[..., :-1] - 1e-6).all()
    assert (chance[:, 2] <= chance[:, 0] + chance[:, 1] + 1e-5).all()
    assert (chance[:, 2, :, -1] <= intensity.sum((1, 3)) + 1e-5).all()  # at least one, against how many
    torch.testing.assert_close(zones.sum(-1), torch.ones(16))


def test_flags_are_hidden_in_the_share_asked_for() -> None:
    torch.manual_seed(0)
    assert random_flags(100, 0.0, CPU).all()
    poor = ~random_flags(4000, 0.5, CPU).all(1)
    assert 0.45 < float(poor.float().mean()) < 0.55

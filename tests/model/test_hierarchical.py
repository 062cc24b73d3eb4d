"""The parts of the paper's network against formulas by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from ballcast.model.hierarchical import Aggregator, SlotDecoder, pooling_matrix
from ballcast.model.layers import DecoderLayer, embedding


@pytest.mark.parametrize(("snippets", "steps"), [(33, 8), (21, 8), (8, 8), (5, 8), (7, 1)])
def test_pooling_is_adaptive_average_pooling(snippets: int, steps: int) -> None:
    x = torch.randn(3, snippets, 4)
    expected = functional.adaptive_avg_pool1d(x.transpose(1, 2), steps).transpose(1, 2)
    torch.testing.assert_close(pooling_matrix(snippets, steps) @ x, expected)


def aggregator(weight: str) -> Aggregator:
    gru = nn.GRU(3, 3, batch_first=True)
    return Aggregator(gru=gru, windows=2, snippets=4, steps=2, weight=weight, gamma=2.0)  # type: ignore[arg-type]


def test_window_weights_scale_all_steps_of_a_window() -> None:
    module = aggregator("input")
    assert module.gamma is not None
    with torch.no_grad():
        module.gamma.copy_(torch.tensor([0.0, 100.0]))  # alpha 0.5 and 1
    tokens = torch.randn(1, 2, 4, 3)
    memory, counts = module(tokens)
    means = tokens.reshape(1, 2, 2, 2, 3).mean(dim=3)  # (1, W, S, d): snippets pooled two by two
    by_hand = torch.cat([0.5 * means[:, 0], means[:, 1]], dim=1)  # (1, 4, d)
    torch.testing.assert_close(memory, module.gru(by_hand)[0])
    assert counts is None


def test_window_weights_on_the_memory_or_nowhere() -> None:
    tokens = torch.randn(1, 2, 4, 3)
    plain = aggregator("none")
    on_memory = aggregator("memory")
    on_memory.gru.load_state_dict(plain.gru.state_dict())
    assert plain.gamma is None
    torch.testing.assert_close(on_memory(tokens)[0], plain(tokens)[0] * torch.sigmoid(torch.tensor(2.0)))


def test_absent_windows_are_not_read() -> None:
    module = aggregator("input")
    tokens = torch.randn(2, 2, 4, 3)
    present = torch.tensor([[False, True], [True, True]])
    memory, counts = module(tokens, present)
    assert counts is not None
    assert counts.tolist() == [[False, False, True, True], [True] * 4]
    spoiled = tokens.clone()
    spoiled[0, 0] = torch.nan
    torch.testing.assert_close(module(spoiled, present)[0], memory)
    torch.testing.assert_close(memory[1:], module(tokens[1:])[0])  # a full sample is as if there were no mask


def decoder(*, conditioned: bool) -> SlotDecoder:
    return SlotDecoder(
        slots=embedding(2, 4, std=1.0),
        context=nn.Linear(4, 4, bias=False) if conditioned else None,
        layers=[DecoderLayer(dim=4, heads=2, ffn=8, dropout=0.1)],
        norm=nn.LayerNorm(4),
    )


def test_equation_1_by_hand() -> None:
    module = decoder(conditioned=True)
    assert module.context is not None
    with torch.no_grad():
        module.slots.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]]))
        module.context.weight.copy_(torch.diag(torch.tensor([1.0, 2, 3, 4])))
    memory = torch.tensor([[[1.0, 1, 1, 1], [3, 1, 0, 2], [5, 1, 2, 0]]])  # (1, T 3, d 4), mean (3, 1, 1, 1)
    assert module.queries(memory).tolist() == [[[4, 2, 3, 4], [3, 3, 3, 4]]]
    counts = torch.tensor([[False, True, True]])  # mean of the last two: (4, 1, 1, 1)
    assert module.queries(memory, counts).tolist() == [[[5, 2, 3, 4], [4, 3, 3, 4]]]


def test_static_queries_are_the_slots() -> None:
    module = decoder(conditioned=False)
    assert torch.equal(module.queries(torch.randn(3, 5, 4)), module.slots.weight.expand(3, -1, -1))


def test_steps_that_do_not_count_are_not_looked_at() -> None:
    module = decoder(conditioned=True).eval()
    memory = torch.randn(2, 6, 4)
    counts = torch.tensor([[False] * 2 + [True] * 4, [True] * 6])
    z = module(memory, counts)
    changed = memory.clone()
    changed[0, :2] += 7
    torch.testing.assert_close(module(changed, counts), z)
    torch.testing.assert_close(z[:1], module(memory[:1, 2:]))  # as if they were not there
    assert not torch.allclose(module(changed), module(memory))

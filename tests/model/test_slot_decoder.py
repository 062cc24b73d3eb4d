import torch
from torch import nn

from ballcast.model.attention import DecoderLayer, embedding
from ballcast.model.slot_decoder import SlotDecoder


def decoder(*, conditioned: bool) -> SlotDecoder:
    return SlotDecoder(
        slots=embedding(2, 4, std=1.0),
        context=nn.Linear(4, 4, bias=False) if conditioned else None,
        layers=[DecoderLayer(dim=4, heads=2, ffn=8, dropout=0.1)],
        norm=nn.LayerNorm(4),
    )


def test_equation_1_by_hand() -> None:
    room = decoder(conditioned=True)
    assert room.context is not None
    with torch.no_grad():
        room.slots.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]]))
        room.context.weight.copy_(torch.diag(torch.tensor([1.0, 2, 3, 4])))
    memory = torch.tensor([[[1.0, 1, 1, 1], [3, 1, 0, 2], [5, 1, 2, 0]]])  # (1, T 3, d 4), mean (3, 1, 1, 1)
    assert room.queries(memory).tolist() == [[[4, 2, 3, 4], [3, 3, 3, 4]]]
    counts = torch.tensor([[False, True, True]])  # mean of the last two: (4, 1, 1, 1)
    assert room.queries(memory, counts).tolist() == [[[5, 2, 3, 4], [4, 3, 3, 4]]]


def test_static_queries_are_the_slots() -> None:
    room = decoder(conditioned=False)
    assert torch.equal(room.queries(torch.randn(3, 5, 4)), room.slots.weight.expand(3, -1, -1))


def test_steps_that_do_not_count_are_not_looked_at() -> None:
    room = decoder(conditioned=True).eval()
    memory = torch.randn(2, 6, 4)
    counts = torch.tensor([[False] * 2 + [True] * 4, [True] * 6])
    z = room(memory, counts)
    changed = memory.clone()
    changed[0, :2] += 7
    torch.testing.assert_close(room(changed, counts), z)
    torch.testing.assert_close(z[:1], room(memory[:1, 2:]))  # as if they were not there
    assert not torch.allclose(room(changed), room(memory))

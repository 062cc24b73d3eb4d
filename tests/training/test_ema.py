import pytest
import torch
from torch import nn

from ballcast.core.errors import InputError
from ballcast.training.ema import Ema


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def take_step(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn(value.shape, generator=generator))
    module.train()
    module(torch.randn(8, 3, generator=generator))


def test_mean_weighs_steps_by_their_age() -> None:
    module, decay = network(), 0.7
    ema, seen, statistics = Ema(module, decay), [], []
    for seed in range(5):
        take_step(module, seed)
        ema.update()
        seen.append(module[0].weight.detach().clone())
        statistics.append(module[1].running_mean.clone())
    weights = torch.tensor([decay ** (4 - n) for n in range(5)])
    weights = weights / weights.sum()
    target = network()
    ema.copy_to(target)
    assert torch.allclose(target[0].weight, sum(w * s for w, s in zip(weights, seen, strict=True)), atol=1e-6)
    assert torch.allclose(
        target[1].running_mean, sum(w * s for w, s in zip(weights, statistics, strict=True)), atol=1e-6
    )
    assert target[1].num_batches_tracked == 5  # copied


def test_first_step_is_the_mean_and_before_it_the_module_is() -> None:
    module, target = network(), network()
    ema = Ema(module, 0.999)
    take_step(module, 1)
    ema.copy_to(target)
    assert torch.equal(target[0].weight, module[0].weight)
    ema.update()
    ema.copy_to(target)
    assert torch.allclose(target[0].weight, module[0].weight, rtol=1e-4, atol=1e-6)


def test_swapped_gives_the_weights_back_in_place_also_after_an_error() -> None:
    module = network()
    ema = Ema(module, 0.5)
    for seed in range(3):
        take_step(module, seed)
        ema.update()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    place = module[0].weight.data_ptr()
    with ema.swapped():
        assert not torch.equal(module[0].weight, before["0.weight"])
    with pytest.raises(ValueError, match="boo"), ema.swapped():
        raise ValueError("boo")
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert module[0].weight.data_ptr() == place


def test_state_goes_on_bit_for_bit() -> None:
    module = network()
    ema = Ema(module, 0.9)
    take_step(module, 0)
    ema.update()
    saved = {k: v.clone() for k, v in ema.state_dict().items()}
    again = Ema(module, 0.9)
    again.load_state_dict(saved)
    take_step(module, 1)
    ema.update()
    again.update()
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in ema.state_dict().items())


def test_what_does_not_learn_is_copied_to_the_bit() -> None:
    module, target = network(), network()
    module[0].requires_grad_(False)
    module[1].requires_grad_(False)
    ema = Ema(module, 0.99)
    for _ in range(7):
        with torch.no_grad():
            module[2].weight.add_(1.0)
        ema.update()
    ema.copy_to(target)
    assert set(ema.state_dict()) == {"count", "sum.2.weight", "sum.2.bias"}
    for key in ("0.weight", "1.running_mean"):
        assert torch.equal(target.state_dict()[key], module.state_dict()[key])
    assert not torch.equal(target[2].weight, module[2].weight)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decay_is_checked(decay: float) -> None:
    with pytest.raises(InputError, match="decay"):
        Ema(network(), decay)


def test_another_models_state_is_refused() -> None:
    ema = Ema(network(), 0.9)
    with pytest.raises(InputError, match="another model"):
        ema.load_state_dict(Ema(nn.Linear(3, 4), 0.9).state_dict())
    with pytest.raises(InputError, match="other weights"):
        ema.copy_to(nn.Linear(3, 4))


@pytest.mark.gpu
def test_recorded_in_a_graph_it_is_the_same() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    module = network().cuda()
    eager, recorded = Ema(module, 0.9), Ema(module, 0.9)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded.update()
    for seed in range(3):
        with torch.no_grad():
            for value in module.parameters():
                value.copy_(torch.full_like(value, float(seed)))
        eager.update()
        graph.replay()
    assert all(torch.equal(v, recorded.state_dict()[k]) for k, v in eager.state_dict().items())

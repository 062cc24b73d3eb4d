"""Exponential moving average of a model's weights: it is what is scored and saved.

ema = Ema(model, decay=0.999)
…                                    # a step of the optimizer
ema.update()
with ema.swapped():                  # the model is the mean in this block
    evaluate(model)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ballcast.core.errors import InputError


class Ema:
    """The mean of a module's weights over its latest steps, a step n ago weighing decayⁿ.

    The sum starts at zero and is divided by its weights' sum, 1 − decayⁿ, when it is read: the mean is right from the
    first step on, with no warm-up of the decay, and the initial weights are no part of it. Statistics of batch norms
    are averaged like weights, since the newest fit only the newest weights; counters, and whatever does not learn, are
    copied.

    `update` is one fused kernel (and one for the count), never waits for the host, and may be part of a CUDA graph.

    Args:
        module: whose weights; the bare one, not DDP around it.
        decay: in [0, 1); 1/(1 − decay) steps are about what the mean reaches back over. 0: the weights as they are.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise InputError(f"the decay of a moving average is in [0, 1), not {decay}")
        self.module = module
        self.decay = decay
        learning = _learning(module)
        self._live = {k: v for k, v in _tensors(module).items() if k in learning and v.is_floating_point()}
        self._sum = {k: torch.zeros_like(v) for k, v in self._live.items()}
        device = next(iter(self._live.values())).device
        self.count = torch.zeros((), dtype=torch.float64, device=device)  # steps in the mean

    @torch.no_grad()
    def update(self) -> None:
        """Take the module's weights as they are now into the mean."""
        torch._foreach_lerp_(list(self._sum.values()), list(self._live.values()), 1 - self.decay)
        self.count.add_(1)

    @torch.no_grad()
    def copy_to(self, module: nn.Module) -> None:
        """Set a module of the same kind to the mean; before the first `update` that is our module as it is."""
        target = _tensors(module)
        if target.keys() != _tensors(self.module).keys():
            raise InputError("the moving average is of a module with other weights")
        share = 1 - self.decay ** self.count.item()
        for key, value in _tensors(self.module).items():
            target[key].copy_(self._sum[key] / share if key in self._sum and share else value)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Put the mean into the module within the block, and the weights back after it, in the same memory."""
        weights = {k: v.detach().clone() for k, v in _tensors(self.module).items()}
        self.copy_to(self.module)
        try:
            yield
        finally:
            with torch.no_grad():
                for key, value in _tensors(self.module).items():
                    value.copy_(weights[key])

    def state_dict(self) -> dict[str, Tensor]:
        """`count` and `sum.<weight>`: the tensors themselves, not copies."""
        return {"count": self.count, **{f"sum.{k}": v for k, v in self._sum.items()}}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        mine = self.state_dict()
        for key in sorted(mine.keys() | state.keys()):
            if key not in mine or key not in state or mine[key].shape != state[key].shape:
                raise InputError(f"the saved moving average is of another model (see {key})")
        for key, value in mine.items():
            value.copy_(state[key])


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and kept buffers by name, the tensors themselves; what `state_dict` names, whatever hooks it has."""
    kept = module.state_dict(keep_vars=True)
    return {key: value for key, value in kept.items() if isinstance(value, Tensor)}


def _learning(module: nn.Module) -> set[str]:
    """Names of the weights that learn, and of the buffers beside them."""
    names = set()
    for prefix, part in module.named_modules():
        learning = {k for k, p in part.named_parameters(recurse=False) if p.requires_grad}
        buffers = {k for k, _ in part.named_buffers(recurse=False)} if learning else set()
        names |= {f"{prefix}.{k}" if prefix else k for k in learning | buffers}
    return names

"""One training step: MixUp, forward, both matchings, backward, clipping, AdamW.

On a GPU the whole of it is compiled and recorded in one CUDA graph, so that a step is one launch: at batch 32 the
work is so small that launching it kernel by kernel takes ten times as long as doing it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ballcast.core.recipe import TrainConfig
from ballcast.data.batch import Batch
from ballcast.features.graph import record
from ballcast.loss.criterion import Criterion, Losses, Reduce
from ballcast.loss.targets import Targets
from ballcast.training.ema import Ema


def compute_losses(
    model: nn.Module,
    criterion: Criterion,
    batch: Batch,
    share: Tensor,
    absent: Tensor,
    *,
    bins: int,
    precision: str = "fp32",
    reduce: Reduce | None = None,
    matching: Tensor | None = None,
) -> Losses:
    """The losses of a batch of B samples, or of 2B that are mixed in pairs: sample b with sample B + b.

    `share` (B,) is λ, the part of the first; `absent` (B,) how many early windows to drop. `matching` (B or 2B, K)
    replaces the one computed.
    """
    count = len(share)
    mixed = len(batch.features) == 2 * count
    features, present = batch.features, batch.present
    if mixed:
        part = share.view(-1, 1, 1, 1)
        features = part * features[:count] + (1 - part) * features[count:]
        present = present[:count] & present[count:]
    present = present & (torch.arange(present.shape[1], device=present.device) >= absent.unsqueeze(1))
    with torch.autocast(features.device.type, torch.bfloat16, enabled=precision == "bf16"):
        slots = model(features, present)
    weight = None
    if mixed:
        slots = slots.map(lambda t: torch.cat([t, t]))
        weight = torch.cat([share, 1 - share])
    targets = Targets.from_ms(batch.classes, batch.position_ms, bins, batch.presence)
    return criterion(slots, targets, weight, reduce=reduce, matching=matching)


class TrainStep:
    """Callable: a batch in, the five losses (5,) out, the model one step further.

    Args:
        model: the network, or DDP around it.
        bins: the model's bins.
        graphed: record the step (GPU, one process). The optimizer must be made for it.
        ema: the running mean of the weights, which every step goes into.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        criterion: Criterion,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        bins: int,
        graphed: bool,
        reduce: Reduce | None = None,
        ema: Ema | None = None,
    ) -> None:
        self.ema = ema
        self.model = model
        self.criterion = criterion
        self.optimizer = optimizer
        self.config = config
        self.bins = bins
        self.graphed = graphed
        self.reduce = reduce
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        device = self.parameters[0].device
        self.precision = config.precision if device.type == "cuda" else "fp32"
        self._losses_of: Callable[..., Losses] = compute_losses
        if device.type == "cuda" and config.compile:
            self._losses_of = torch.compile(compute_losses, dynamic=False)
        self._inputs: tuple[Batch, Tensor, Tensor] | None = None
        self._replay: Callable[[], None] | None = None
        self._result: Tensor | None = None

    def __call__(self, batch: Batch, share: Tensor, absent: Tensor) -> Tensor:
        if not self.graphed:
            return self._work(batch, share, absent)
        if self._replay is None:
            self._record(batch, share, absent)
        assert self._inputs is not None
        assert self._replay is not None
        assert self._result is not None
        static_batch, static_share, static_absent = self._inputs
        static_batch.copy_(batch)
        static_share.copy_(share, non_blocking=True)
        static_absent.copy_(absent, non_blocking=True)
        self._replay()
        return self._result

    def _work(self, batch: Batch, share: Tensor, absent: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        losses = self._losses_of(
            self.model,
            self.criterion,
            batch,
            share,
            absent,
            bins=self.bins,
            precision=self.precision,
            reduce=self.reduce,
        )
        losses.total.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update()
        return torch.stack(losses).detach()

    def _record(self, batch: Batch, share: Tensor, absent: Tensor) -> None:
        """Record the step on copies of its inputs; the warm-up's steps are undone afterwards."""
        inputs = (Batch(*(t.clone() for t in batch.tensors())), share.clone(), absent.clone())
        before = [p.detach().clone() for p in self.parameters]
        mean = {k: v.clone() for k, v in self.ema.state_dict().items()} if self.ema is not None else {}
        moments = {p: {k: v.clone() for k, v in self.optimizer.state[p].items()} for p in self.optimizer.state}
        generator = torch.cuda.default_generators[self.parameters[0].device.index or 0]
        drawn = generator.get_state()
        self._replay, self._result = record(lambda: self._work(*inputs))
        with torch.no_grad():
            for parameter, value in zip(self.parameters, before, strict=True):
                parameter.copy_(value)
            for parameter in self.parameters:
                for key, value in self.optimizer.state[parameter].items():
                    value.copy_(moments[parameter][key]) if parameter in moments else value.zero_()
        if self.ema is not None:
            self.ema.load_state_dict(mean)
        generator.set_state(drawn)
        self._inputs = inputs

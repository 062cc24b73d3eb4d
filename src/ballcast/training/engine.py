"""An epoch of training and a pass of evaluation, as plain functions, in one process or in several (torchrun, DDP)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ballcast.core.anticipator_config import EmitConfig, TrainConfig
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.events import Prediction, merge_arrays, merge_bins
from ballcast.data.samples.batches import Plan, Samples
from ballcast.metrics.average_precision import Score, score, score_arrays
from ballcast.model.postprocess import emit, emit_flat
from ballcast.model.slots import Slots
from ballcast.training.steps import TrainStep, learning_rate, set_learning_rate


@dataclass(frozen=True)
class Ranks:
    """This process among all of them."""

    rank: int = 0
    count: int = 1

    @property
    def writes(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.count == 1:
            return model
        devices = [p.device.index for p in model.parameters()][:1] if next(model.parameters()).is_cuda else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes, in every one of them."""
        if self.count > 1:
            values = values.detach().clone()
            dist.all_reduce(values)
            values = values / self.count
        return values

    def interleave(self, own: Tensor, total: int) -> Tensor:
        """Rows r, r + count, … of each rank r → all `total` rows in order, in every process."""
        if self.count == 1:
            return own
        longest = -(-total // self.count)
        padded = torch.zeros(longest, *own.shape[1:], dtype=own.dtype, device=own.device)
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        dist.all_gather(parts, padded)
        return torch.stack(parts, 1).flatten(0, 1)[:total]


def start(device: str) -> tuple[Ranks, torch.device]:
    """Join the others if torchrun started us; gives our rank and our device.

    `device` is "auto", "cpu" or "cuda".
    """
    count, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise InputError("--device cuda: torch sees no GPU here; use --device auto or cpu (see `ballcast doctor`)")
    chosen = torch.device("cuda", local) if has_gpu and device != "cpu" else torch.device("cpu")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if count > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return (Ranks(dist.get_rank(), count) if count > 1 else Ranks()), chosen


def stop(ranks: Ranks) -> None:
    if ranks.count > 1 and dist.is_initialized():
        dist.destroy_process_group()


READ_EVERY = 25  # steps between looks at the losses on a GPU; each look makes the host wait

# (steps done in this epoch, their learning rates and losses) → nothing
Report = Callable[[int, list[float], Tensor], None]


class NotFinite(BallcastError):
    """A loss became NaN or infinite."""


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in train or eval mode within the block, and as it was after it."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def train_epoch(
    step: TrainStep,
    samples: Samples,
    plan: Plan,
    *,
    config: TrainConfig,
    epoch: int,
    first: int = 0,
    report: Report,
) -> None:
    """Steps `first` … of an epoch's plan. `report` gets the losses of the steps since its last call, in order."""
    total = len(plan)
    device = samples.plan_device
    chosen = torch.from_numpy(plan.first).to(device)
    if plan.mixed:
        chosen = torch.cat([chosen, torch.from_numpy(plan.second).to(device)], dim=1)
    shares = torch.from_numpy(plan.share).to(samples.device)
    absents = torch.from_numpy(plan.absent).to(samples.device)
    every = READ_EVERY if samples.device.type == "cuda" else 1
    rates: list[float] = []
    unread: list[Tensor] = []
    with mode(step.model, training=True):
        for i, batch in enumerate(samples.stream(chosen[first:].unbind()), start=first):
            rates.append(learning_rate(epoch * total + i, total, config))
            set_learning_rate(step.optimizer, rates[-1])
            unread.append(step(batch, shares[i], absents[i]).clone())
            if len(unread) == every or i == total - 1:
                losses = torch.stack(unread).cpu()  # (steps, 5)
                _require_finite(losses, samples, plan, epoch, i + 1 - len(unread))
                report(i + 1, rates, losses)
                rates, unread = [], []


def _require_finite(losses: Tensor, samples: Samples, plan: Plan, epoch: int, first: int) -> None:
    bad = (~losses.isfinite().all(dim=1)).nonzero()
    if len(bad):
        step = first + int(bad[0])
        members = sorted({*plan.first[step].tolist(), *plan.second[step].tolist()})
        names = ", ".join(samples.windows.names[m % len(samples)] for m in members)
        raise NotFinite(
            f"epoch {epoch + 1} step {step + 1}: the loss is {losses[int(bad[0]), 0].item()}; the batch was {names}; "
            "look at these features, or lower train.lr; the last saved state is from before"
        )


@torch.inference_mode()
def predict(
    model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None
) -> dict[str, list[Prediction]]:
    """All that is emitted for every sample, by its name, in order, entries of one bin not merged yet.

    Several ranks share the work and all get the result.
    """
    return dict(zip(samples.windows.names, emit(predict_slots(model, samples, ranks=ranks), config), strict=True))


@torch.inference_mode()
def predict_slots(model: nn.Module, samples: Samples, *, ranks: Ranks | None = None) -> Slots:
    """The slots of every sample, in order and in float32."""
    ranks = ranks or Ranks()
    with mode(model, training=False):
        parts = samples.run(model, rank=ranks.rank, ranks=ranks.count)
    return _cat(parts).map(lambda t: ranks.interleave(t.float(), len(samples)))


def evaluate(model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None) -> Score:
    """The official score on the samples, which must be official clips, merged as a submission is.

    The same as `score_of` what `predict` says, without an object for each prediction.
    """
    slots = predict_slots(model, samples, ranks=ranks)
    return score_arrays(samples.windows.clips, *merge_arrays(*emit_flat(slots, config)))


def score_of(samples: Samples, predictions: dict[str, list[Prediction]]) -> Score:
    """The official score of what was emitted, merged as a submission is."""
    return score(samples.windows.clips, {name: merge_bins(emitted) for name, emitted in predictions.items()})


def _cat(parts: list[Slots]) -> Slots:
    presence = None if parts[0].presence is None else torch.cat([p.presence for p in parts if p.presence is not None])
    return Slots(
        torch.cat([p.objectness for p in parts]),
        torch.cat([p.classes for p in parts]),
        torch.cat([p.offsets for p in parts]),
        parts[0].bins,
        presence,
    )

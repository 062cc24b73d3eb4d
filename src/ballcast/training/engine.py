"""An epoch of training and a pass of evaluation, as plain functions, in one process or in several (torchrun, DDP)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ballcast.core.anticipator_config import EmitConfig, Recipe, TrainConfig
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.events import Prediction, merge_arrays, merge_bins
from ballcast.data.samples.batches import Plan, Samples, plan_epoch
from ballcast.loss.criterion import Criterion
from ballcast.metrics.average_precision import TOLERANCES, Score, score, score_arrays
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit, emit_flat
from ballcast.model.slots import Slots
from ballcast.training.checkpoint import Progress
from ballcast.training.ema import Ema
from ballcast.training.run_folder import EPOCH_COLUMNS, STEP_COLUMNS
from ballcast.training.splits import TrainingData
from ballcast.training.steps import TrainStep, build_anticipator, build_optimizer, learning_rate, set_learning_rate


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


def choose_device(device: str) -> torch.device:
    """The device to train on; under torchrun, this process's GPU.

    Args:
        device: "auto", "cpu", "cuda" or "mps". Never "mps" by itself: training computes in double precision too, which
            Apple's GPU has not.
    """
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise InputError("--device cuda: torch sees no GPU here; use --device auto or cpu (see `ballcast doctor`)")
    kind = device if device != "auto" else "cuda" if has_gpu else "cpu"
    if kind != "cuda":
        return torch.device(kind)
    chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(chosen)
    return chosen


@contextmanager
def joined(device: str) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the process group within the block, if torchrun started this process.

    Yields:
        This process's rank, and its device as of `choose_device`.
    """
    count, chosen = int(os.environ.get("WORLD_SIZE", 1)), choose_device(device)
    if count == 1:
        yield Ranks(), chosen
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), count), chosen
        # A thread of Gloo may still hold a tensor of the last operation; if it lets go of it while Python ends, the
        # process aborts (pytorch/pytorch#190489). A barrier comes after it in the queue, and holds none.
        dist.barrier()
    finally:
        dist.destroy_process_group()


READ_EVERY = 25  # steps between two reads of the losses from a GPU; each read makes the host wait


class NotFinite(BallcastError):
    """A loss became NaN or infinite."""


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Set train or eval mode within the block, and restore it after."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


def train_epoch(
    step: TrainStep, samples: Samples, plan: Plan, *, config: TrainConfig, epoch: int, first: int = 0
) -> Iterator[tuple[float, Tensor]]:
    """Train for an epoch.

    Args:
        step: the training step.
        samples: all training samples.
        plan: which of them each step gets.
        config: of the learning rate.
        epoch: counted from 0.
        first: the first step of the plan to do.

    Yields:
        After each step its learning rate and losses (5,), which may still be under way on the device.
    """
    total = len(plan)
    device = samples.plan_device
    chosen = torch.from_numpy(plan.first).to(device)
    if plan.mixed:
        chosen = torch.cat([chosen, torch.from_numpy(plan.second).to(device)], dim=1)
    shares = torch.from_numpy(plan.share).to(samples.device)
    absents = torch.from_numpy(plan.absent).to(samples.device)
    with mode(step.model, training=True):
        for i, batch in enumerate(samples.stream(chosen[first:].unbind()), start=first):
            rate = learning_rate(epoch * total + i, total, config)
            set_learning_rate(step.optimizer, rate)
            yield rate, step(batch, shares[i], absents[i]).clone()


def read_losses(
    steps: Iterator[tuple[float, Tensor]], count: int, device: torch.device
) -> Iterator[tuple[list[float], Tensor]]:
    """Read the losses of `count` steps, several steps at a time on a GPU.

    Yields:
        The learning rates of the steps since the last read, and their losses (steps, n) on the CPU.
    """
    every = READ_EVERY if device.type == "cuda" else 1
    rates: list[float] = []
    unread: list[Tensor] = []
    for done, (rate, losses) in enumerate(steps, start=1):
        rates.append(rate)
        unread.append(losses)
        if len(unread) == every or done == count:
            yield rates, torch.stack(unread).cpu()
            rates, unread = [], []


@torch.inference_mode()
def predict(
    model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None
) -> dict[str, list[Prediction]]:
    """Predict every sample: name → predictions in order, entries of one bin not merged yet.

    Several ranks share the work, and all get the result.
    """
    return dict(zip(samples.windows.names, emit(predict_slots(model, samples, ranks=ranks), config), strict=True))


@torch.inference_mode()
def predict_slots(model: nn.Module, samples: Samples, *, ranks: Ranks | None = None) -> Slots:
    """The slots of every sample, in order and in float32."""
    ranks = ranks or Ranks()
    with mode(model, training=False):
        parts = samples.run(model, rank=ranks.rank, ranks=ranks.count)
    return join_slots(parts).map(lambda t: ranks.interleave(t.float(), len(samples)))


def evaluate(model: nn.Module, samples: Samples, config: EmitConfig, *, ranks: Ranks | None = None) -> Score:
    """Compute the official score on samples of official clips, merged as a submission is.

    Equal to `score_of(samples, predict(…))`, without an object for each prediction.
    """
    slots = predict_slots(model, samples, ranks=ranks)
    return score_arrays(samples.windows.clips, *merge_arrays(*emit_flat(slots, config)))


def score_of(samples: Samples, predictions: dict[str, list[Prediction]]) -> Score:
    """Compute the official score of predictions, merged as a submission is."""
    return score(samples.windows.clips, {name: merge_bins(emitted) for name, emitted in predictions.items()})


def join_slots(parts: list[Slots]) -> Slots:
    """Concatenate the samples of all parts."""
    presence = None if parts[0].presence is None else torch.cat([p.presence for p in parts if p.presence is not None])
    return Slots(
        torch.cat([p.objectness for p in parts]),
        torch.cat([p.classes for p in parts]),
        torch.cat([p.offsets for p in parts]),
        parts[0].bins,
        presence,
        counts=parts[0].counts,
    )


class AnticipationTask:
    """The `run.Task` that trains an anticipator on batches of samples.

    Args:
        recipe: of the run.
        folder: the run's folder.
        ranks: this process among those of the run.
        model: the anticipator.
        criterion: its loss.
        samples: to train on.
        valid: to validate on, or None.
        optimizer: of the model.
        graphed: record the step as a CUDA graph.
    """

    step_columns: tuple[str, ...] = STEP_COLUMNS
    epoch_columns: tuple[str, ...] = EPOCH_COLUMNS

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        ranks: Ranks,
        *,
        model: Anticipator,
        criterion: Criterion,
        samples: Samples,
        valid: Samples | None,
        optimizer: torch.optim.Optimizer,
        graphed: bool = False,
    ) -> None:
        self.recipe, self.folder, self.ranks = recipe, folder, ranks
        self.model, self.samples, self.valid = model, samples, valid
        self.learner: nn.Module = model
        self.optimizer = optimizer
        self.ema = Ema(model, recipe.train.ema) if recipe.train.ema else None
        self.samples_per_step, self.patience = recipe.train.batch, recipe.train.patience
        self.step = TrainStep(
            model=ranks.wrap(model),
            criterion=criterion,
            optimizer=optimizer,
            config=recipe.train,
            bins=recipe.model.bins,
            graphed=graphed,
            reduce=ranks.mean if ranks.count > 1 else None,
            ema=self.ema,
        )

    @classmethod
    def on_features(
        cls,
        recipe: Recipe,
        folder: Path,
        device: torch.device,
        ranks: Ranks,
        data: TrainingData,
        log: Callable[[str], None],
    ) -> "AnticipationTask":
        """The task of training on stored features."""
        samples = Samples(data.train, device, recipe.data.device)
        valid = Samples(data.valid, device, recipe.data.device) if data.valid is not None else None
        model, criterion = build_anticipator(recipe, data, device, log=log if ranks.writes else None)
        graphed = device.type == "cuda" and recipe.train.graph and ranks.count == 1
        optimizer = build_optimizer(model, recipe.train, graphed=graphed)
        return cls(
            recipe,
            folder,
            ranks,
            model=model,
            criterion=criterion,
            samples=samples,
            valid=valid,
            optimizer=optimizer,
            graphed=graphed,
        )

    @property
    def metadata(self) -> dict[str, Any]:
        return self.model.metadata

    @property
    def steps_per_epoch(self) -> int:
        return len(self.plan(0))

    @property
    def validates(self) -> bool:
        return self.valid is not None

    def plan(self, epoch: int) -> Plan:
        """The samples of each step of an epoch that are this process's."""
        recipe = self.recipe
        plan = plan_epoch(
            self.samples.windows.classes,
            recipe.data,
            batch=recipe.train.batch,
            windows=recipe.model.windows,
            seed=recipe.train.seed,
            epoch=epoch,
        )
        return plan.slice(self.ranks.rank, self.ranks.count)

    def prepare(self, step: int) -> None:
        """Nothing is left to prepare."""

    def train_epoch(self, epoch: int, first: int) -> Iterator[tuple[float, Tensor]]:
        config, plan = self.recipe.train, self.plan(epoch)
        return train_epoch(self.step, self.samples, plan, config=config, epoch=epoch, first=first)

    def evaluate(self, epoch: int) -> Score | None:
        if self.valid is None:
            return None
        return evaluate(self.model, self.valid, self.recipe.emission, ranks=self.ranks)

    def curves(self, score: Score) -> dict[str, float]:
        return dict(zip((*TOLERANCES, "avg"), [*score.at.values(), score.avg], strict=True))

    def save(self, name: str) -> None:
        self.model.save_pretrained(self.folder / name)

    def explain(self, epoch: int, step: int) -> str:
        plan = self.plan(epoch)
        members = sorted({*plan.first[step].tolist(), *plan.second[step].tolist()})
        names = ", ".join(self.samples.windows.names[m % len(self.samples)] for m in members)
        return f"the batch was {names}; look at these features, or lower train.lr"

    def finish(self, progress: Progress, seconds: float) -> None:
        """Nothing is left to do."""

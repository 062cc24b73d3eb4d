"""Training of the event transformer on feeds: windows drawn at random times, all on the device.

A step draws times T anywhere in the periods, builds tokens and targets from the table of events, and updates the model
and the moving average of its weights. On a GPU the whole step is one CUDA graph, since single kernels are too short to
launch one by one. The length is given in seconds, and the learning rate follows the share of them that has passed, so
that a run fits its time on a device that is shared.

B windows a batch, M actions after T, K slots, C actions.
"""

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.actions import FPS, HORIZON_MS
from ballcast.core.event_schema import DETAILS, END_Y, OTHER, ZONES, Y
from ballcast.core.events import GRID_BINS, GRID_STEP
from ballcast.data.events.event_tokens import PERIOD_MS, EventTable, build_table, hide, tokens_before
from ballcast.data.events.feed import Feed
from ballcast.model.event_transformer import TEAMS, C, EventSlots, EventTransformer, EventTransformerConfig

LOOKED_AT = 14  # actions after T from which the first 8 distinct ones are taken


@dataclass(frozen=True)
class FeedTrainConfig:
    """How to train: `seconds` in all, `batch` windows a step, the rest as usual.

    - `poisson`: weight of the loss on the expected actions of each class and bin.
    - `plain`: share of the windows from which details that a poorer feed would lack are hidden.
    - `distil`: weight of the teachers' outputs against the labels, if there are teachers.
    - `steps`: stop after so many, whatever the time; 0: no limit.
    """

    seconds: float = 240.0
    batch: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.04
    ema: float = 0.998
    sigma: float = 1.0
    zones: float = 0.1
    poisson: float = 0.2
    plain: float = 0.0
    distil: float = 0.7
    steps: int = 0
    seed: int = 0


@dataclass(frozen=True)
class FeedDataset:
    """The periods of the training matches on a device: events, actions to come, and where T may lie."""

    table: EventTable
    clock: Tensor  # (A,) of the actions, as in the table
    action: Tensor  # (A,)
    team: Tensor  # (A,)
    place: Tensor  # (A, 2) start, as the acting team sees it
    located: Tensor  # (A,) whether the start is known
    begins: Tensor  # (P,) cumulative length of the periods before
    rates: Tensor  # (C,) mean number of each action in 5 s
    total: int  # length of all periods, in ms

    @classmethod
    def from_feeds(cls, feeds: Sequence[Feed], device: torch.device, *, earliest_ms: int = 5_000) -> "FeedDataset":
        periods = [half for feed in feeds for _, half in feed.periods() if half.t_ms.max() > earliest_ms + HORIZON_MS]
        table = build_table(periods)
        tensors = EventTable(**{name: torch.from_numpy(column).to(device) for name, column in vars(table).items()})
        acted = [half.take(half.action != OTHER) for half in periods]
        clock = np.concatenate([i * PERIOD_MS + half.t_ms for i, half in enumerate(acted)])
        action = np.concatenate([half.action for half in acted]).astype(np.int64)
        place = np.concatenate([half.start for half in acted]) / 100
        lengths = np.array([half.t_ms.max() - HORIZON_MS - earliest_ms for half in periods], np.int64)
        rates = (np.bincount(action, minlength=C) * HORIZON_MS / lengths.sum()).clip(1e-4)  # an action may be missing
        columns: dict[str, NDArray[Any]] = {
            "clock": clock,
            "action": action,
            "team": np.concatenate([half.team for half in acted]).astype(np.int64),
            "place": np.nan_to_num(place, nan=0.5).clip(0, 1).astype(np.float32),
            "located": np.asarray(~np.isnan(place).any(1)),
            "begins": np.cumsum(lengths) - lengths,
            "rates": rates.astype(np.float32),
        }
        moved = {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in columns.items()}
        return cls(tensors, **moved, total=int(lengths.sum()))

    def draw(self, count: int, earliest_ms: int = 5_000) -> Tensor:
        """(count,) int64: random times T on the table's clock, evenly over all periods."""
        device = self.clock.device
        at = (torch.rand(count, device=device, dtype=torch.float64) * self.total).long().clamp(max=self.total - 1)
        period = torch.searchsorted(self.begins, at, right=True) - 1
        return period * PERIOD_MS + earliest_ms + at - self.begins[period]


@dataclass(frozen=True)
class FeedTargets:
    """The targets after T: `classes` (B, K), −1: none; `team` (B, K) 0: that of the last event; `bins` (B, K);
    `zones` (B, K), −1: unknown; `counts` (B, C, 32)."""

    classes: Tensor
    team: Tensor
    bins: Tensor
    zones: Tensor
    counts: Tensor


def targets_after(feeds: FeedDataset, at: Tensor, slots: int) -> FeedTargets:
    """Find the first actions of the 5 s after each time (B,), as `event_grid.compute_targets` does.

    Two of one class in one bin count once: the first.
    """
    begin = torch.searchsorted(feeds.clock, at)
    index = begin[:, None] + torch.arange(LOOKED_AT, device=at.device)  # (B, M)
    exists = index < len(feeds.clock)
    index = index.clamp(max=len(feeds.clock) - 1)
    delay = feeds.clock[index] - at[:, None]
    inside = exists & (delay < HORIZON_MS)
    bins = torch.where(inside, delay * FPS // (1000 * GRID_STEP), 0)
    action = feeds.action[index]
    key = action * GRID_BINS + bins
    earlier = torch.ones(LOOKED_AT, LOOKED_AT, dtype=torch.bool, device=at.device).tril(-1)
    repeated = ((key[:, :, None] == key[:, None, :]) & inside[:, None, :] & earlier).any(-1)
    kept = inside & ~repeated
    rank = kept.cumsum(1) - 1
    chosen = (rank[..., None] == torch.arange(slots, device=at.device)) & kept[..., None]  # (B, M, K)

    def of(column: Tensor) -> Tensor:
        return (chosen * column[..., None]).sum(1)

    before = (torch.searchsorted(feeds.table.clock, at) - 1).clamp(min=0)
    same = feeds.team[index] == feeds.table.team[before][:, None]
    place = torch.where(same[..., None], feeds.place[index], 1 - feeds.place[index])
    zone = (place[..., 0] * ZONES[0]).long().clamp(max=ZONES[0] - 1) * ZONES[1]
    zone = zone + (place[..., 1] * ZONES[1]).long().clamp(max=ZONES[1] - 1)
    real = chosen.any(1)
    counts = torch.zeros(len(at), C * GRID_BINS, device=at.device)
    counts = counts.scatter_add(1, key, (kept & (rank < slots)).float())
    return FeedTargets(
        torch.where(real, of(action), -1),
        of((~same).long()),
        of(bins),
        torch.where(real, of(torch.where(feeds.located[index], zone, -1)), -1),
        counts.unflatten(1, (C, GRID_BINS)),
    )


def criterion(slots: EventSlots, coming: FeedTargets, how: FeedTrainConfig, rates: Tensor) -> Tensor:
    """The loss against the labels, a scalar: kind, time and zone of each slot, and the expected actions of each bin."""
    real = coming.classes >= 0
    kind = torch.where(real, 1 + coming.team * C + coming.classes, 0)
    log_kinds = slots.kinds.float().log_softmax(-1)
    log_times = slots.times.float().log_softmax(-1)
    total = functional.nll_loss(log_kinds.flatten(0, 1), kind.flatten(), reduction="sum")
    chosen = coming.classes.clamp(min=0)[..., None, None].expand(-1, -1, 1, GRID_BINS)
    own = log_times.gather(2, chosen).squeeze(2)  # (B, K, 32)
    distance = torch.arange(GRID_BINS, device=own.device) - coming.bins[..., None]
    soft = torch.exp(-0.5 * (distance / how.sigma) ** 2)
    soft = soft / soft.sum(-1, keepdim=True)
    total = total - ((soft * own).sum(-1) * real).sum()
    if how.zones:
        known = coming.zones >= 0
        zone = functional.cross_entropy(
            slots.zones.float().flatten(0, 1), coming.zones.clamp(min=0).flatten(), reduction="none"
        )
        total = total + how.zones * (zone * known.flatten()).sum()
    if how.poisson:
        kinds = log_kinds.exp()[..., 1:].unflatten(-1, (TEAMS, C)).sum(-2)  # (B, K, C)
        intensity = (kinds[..., None] * log_times.exp()).sum(1)  # (B, C, 32)
        misfit = intensity - coming.counts * (intensity + 1e-6).log()
        total = total + how.poisson * (misfit.sum(-1) * (rates.mean() / rates).sqrt()).sum()
    return total / kind.numel()


def distillation(slots: EventSlots, teachers: Sequence[EventSlots]) -> Tensor:
    """Cross-entropy against the mean of the teachers, a scalar; times weigh as much as their class is expected."""
    kinds = [t.kinds.float().softmax(-1) for t in teachers]
    mean = torch.stack(kinds).mean(0)  # (B, K, 1 + 2C)
    total = -(mean * slots.kinds.float().log_softmax(-1)).sum()
    expected = [k[..., 1:].unflatten(-1, (TEAMS, C)).sum(-2)[..., None] for k in kinds]  # (B, K, C, 1)
    joint = sum(e * t.times.float().softmax(-1) for e, t in zip(expected, teachers, strict=True)) / len(teachers)
    total = total - (joint * slots.times.float().log_softmax(-1)).sum()
    zones = sum(t.zones[:, 0].float().softmax(-1) for t in teachers) / len(teachers)
    total = total - 0.1 * (zones * slots.zones[:, 0].float().log_softmax(-1)).sum()
    return total / mean[..., 0].numel()


def random_flags(count: int, plain: float, device: torch.device) -> Tensor:
    """(count, flags) bool: the details of the feed; in a share `plain` of the rows each flag is off with 4 in 10."""
    poor = torch.rand(count, 1, device=device) < plain
    return ~(poor & (torch.rand(count, len(DETAILS), device=device) < 0.4))


class FeedTrainer:
    """One training: the model, its moving average `average`, and a step."""

    def __init__(
        self,
        feeds: FeedDataset,
        config: EventTransformerConfig,
        how: FeedTrainConfig,
        *,
        teachers: Sequence[EventTransformer] = (),
    ) -> None:
        self.feeds, self.how, self.teachers = feeds, how, [t.eval() for t in teachers]
        self.device = feeds.clock.device
        torch.manual_seed(how.seed)
        self.model = EventTransformer(config).to(self.device)
        self.average = copy.deepcopy(self.model).eval().requires_grad_(False)
        decayed = [p for n, p in self.model.named_parameters() if p.ndim > 1 and not _is_table(self.model, n)]
        others = [p for p in self.model.parameters() if all(p is not d for d in decayed)]
        on_gpu = self.device.type == "cuda"
        rates = [torch.tensor(0.0, device=self.device) for _ in range(2)] if on_gpu else [0.0, 0.0]
        groups = [
            {"params": decayed, "weight_decay": how.weight_decay, "lr": rates[0]},
            {"params": others, "weight_decay": 0.0, "lr": rates[1]},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=rates[0], betas=(0.9, 0.98), fused=on_gpu, capturable=on_gpu)
        self.loss = torch.zeros((), device=self.device)

    def start(self, weights: Mapping[str, Tensor]) -> None:
        """Begin from the weights of a model of the same sizes."""
        for model in (self.model, self.average):
            model.load_state_dict(weights)

    def step(self) -> None:
        """Draw a batch and update; the loss is left in `self.loss`."""
        how, config = self.how, self.model.config
        self.optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            at = self.feeds.draw(how.batch)
            codes, values = tokens_before(
                torch, self.feeds.table, at, tokens=config.tokens, observed_ms=config.observed_ms
            )
            coming = targets_after(self.feeds, at, config.slots)
            values, coming = _mirror(values, coming)
            available = torch.ones(how.batch, len(DETAILS), dtype=torch.bool, device=self.device)
            taught = [self._forward(t, codes, values, available) for t in self.teachers]
            if how.plain:
                available = random_flags(how.batch, how.plain, self.device)
                codes, values = hide(torch, codes, values, available)
        slots = self._forward(self.model, codes, values, available)
        loss = criterion(slots, coming, how, self.feeds.rates)
        if taught:
            loss = (1 - how.distil) * loss + how.distil * distillation(slots, taught)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - how.ema)
            self.loss.lerp_(loss.detach(), 0.02)

    def _forward(self, model: EventTransformer, codes: Tensor, values: Tensor, available: Tensor) -> EventSlots:
        on_gpu = self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu, cache_enabled=False):
            return model(codes, values, available.float())

    def run(
        self, report: Callable[[float, int], None] = lambda share, step: None, reports: Sequence[float] = ()
    ) -> int:
        """Train for the time given; `report` is called with the share passed at each of `reports`; the steps made."""
        step = self._captured() if self.device.type == "cuda" and not os.environ.get("FEED_EAGER") else self.step
        waiting, began, done, aside = sorted(reports), time.perf_counter(), 0, 0.0
        while True:
            share = (time.perf_counter() - began - aside) / self.how.seconds
            share = max(share, done / self.how.steps if self.how.steps else 0.0)
            if waiting and share >= waiting[0]:
                at = time.perf_counter()
                report(waiting.pop(0), done)
                aside += time.perf_counter() - at
            if share >= 1:
                return done
            self._set_rate(min(share, 1.0))
            step()
            done += 1
            if self.device.type == "cuda" and done % 20 == 0:
                torch.cuda.synchronize()  # so that the time passed is that of the work done

    def _set_rate(self, share: float) -> None:
        how = self.how
        rise = min(share / how.warmup, 1.0) if how.warmup else 1.0
        rate = how.lr * rise * (0.01 + 0.99 * 0.5 * (1 + cos(pi * share)))
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _captured(self) -> Callable[[], None]:
        """The step as a CUDA graph."""
        self._set_rate(0.0)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def _is_table(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Embedding)


def _mirror(values: Tensor, coming: FeedTargets) -> tuple[Tensor, FeedTargets]:
    """Mirror half of the windows across the pitch's length."""
    flip = torch.rand(len(values), 1, device=values.device) < 0.5
    columns = list(values.unbind(-1))
    for across in (Y, END_Y):
        columns[across] = torch.where(flip, 1 - columns[across], columns[across])
    zones = coming.zones
    mirrored = zones // ZONES[1] * ZONES[1] + ZONES[1] - 1 - zones % ZONES[1]
    zones = torch.where(flip & (zones >= 0), mirrored, zones)
    return torch.stack(columns, -1), FeedTargets(coming.classes, coming.team, coming.bins, zones, coming.counts)


def state(model: nn.Module) -> Mapping[str, Any]:
    """The weights on the CPU."""
    return {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}

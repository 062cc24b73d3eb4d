"""One training step: learning rate, MixUp, forward, matching, backward, clipping, AdamW; recorded as one CUDA graph."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.anticipator_config import Recipe, TrainConfig
from ballcast.core.config import to_dict
from ballcast.core.pretrain_config import PretrainTrainConfig
from ballcast.data.samples.batches import Batch
from ballcast.features.backbone import Backbone
from ballcast.features.cuda_graph import record
from ballcast.loss.criterion import Criterion, Losses, Reduce, soft_focal_bce
from ballcast.loss.matcher import Targets, class_weights
from ballcast.model.anticipator import Anticipator
from ballcast.training.augment import Augmentation, apply_augmentation, mix
from ballcast.training.ema import Ema
from ballcast.training.splits import TrainingData, check_stitching, describe_samples


def learning_rate(step: int, steps_per_epoch: int, config: TrainConfig) -> float:
    """The rate of step number `step`, counted from 0 through the whole run.

    The warm-up rises linearly and reaches `lr` with its last step. The first cosine lasts `restart_epochs`, each next
    one `restart_factor` times as long.
    """
    warmup = config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return config.lr * (step + 1) / warmup
    since = step - warmup
    length = config.restart_epochs * steps_per_epoch
    while since >= length:
        since -= length
        length *= config.restart_factor
    return config.lr * 0.5 * (1 + math.cos(math.pi * since / length))


def one_cycle(step: int, steps: int, *, top: float, warmup: float) -> float:
    """The rate of step number `step` of `steps`: up along a half cosine to `top`, and down along another to almost 0.

    `warmup` is the share of all steps that the rise takes; it begins at a 25th of the top.
    """
    rise = warmup * steps
    if step < rise:
        return top * (0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * (step + 1) / rise)))
    return top * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))


def decayed(model: nn.Module) -> set[nn.Parameter]:
    """The parameters weight decay applies to: matrices and kernels, but not embeddings (positions, slots)."""
    embedded = {p for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    return {p for p in model.parameters() if p.ndim >= 2} - embedded


def build_anticipator(
    recipe: Recipe, data: TrainingData, device: torch.device, *, log: Callable[[str], None] | None = None
) -> tuple[Anticipator, Criterion]:
    """Build a new anticipator with its metadata, and its loss, on the device.

    Args:
        recipe: of the run; its seed draws the weights, the same in every process.
        data: what the anticipator is going to be trained on.
        device: where to train.
        log: called with a line about the samples; None: no line and no warnings about them.
    """
    torch.manual_seed(recipe.train.seed)
    windows = data.train
    weights = class_weights(torch.from_numpy(windows.class_counts()), recipe.loss.class_weight)
    if log is not None:
        log(describe_samples(windows, weights))
        check_stitching(windows, weights, recipe.data)
    model = Anticipator(recipe.model, emit=recipe.emission).to(device)
    model.metadata = {
        "backbone": to_dict(data.backbone),
        "class_weights": weights.tolist(),
        "pos_weight": recipe.loss.pos_weight,  # raises the objectness; timelines undo it
        "trained_on": list(recipe.data.train),
        "validated_on": list(recipe.data.valid),
        "leaks": data.leaks,
        "samples": len(windows),
        "seed": recipe.train.seed,
        "ballcast": __version__,
    }
    if data.picture_size:  # other videos are resized to it
        model.metadata["picture_size"] = list(data.picture_size)
    return model, Criterion(config=recipe.loss, model=recipe.model, class_weights=weights).to(device)


def build_optimizer(
    model: nn.Module,
    config: TrainConfig | PretrainTrainConfig,
    *,
    graphed: bool = False,
    slower: nn.Module | None = None,
    factor: float = 1.0,
) -> torch.optim.AdamW:
    """AdamW of what learns in the model.

    `graphed`: made to live inside a CUDA graph, with the learning rate as a tensor on the device. `slower`: a part of
    the model whose learning rate is `factor` times that of the rest.
    """
    trained, heavy = [p for p in model.parameters() if p.requires_grad], decayed(model)
    part = set(slower.parameters()) if slower is not None else set()
    groups = [
        {
            "params": [p for p in trained if (p in heavy) == decays and (p in part) == own],
            "weight_decay": config.weight_decay if decays else 0.0,
            "factor": factor if own else 1.0,
        }
        for own in (False, True)
        for decays in (True, False)
    ]
    device = trained[0].device
    lr = torch.tensor(config.lr, device=device) if graphed else config.lr
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, fused=device.type == "cuda", capturable=graphed)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """`rate` for every group, times the group's own factor."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def optimizer_step(
    loss: Tensor, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, *, clip: float, ema: Ema | None
) -> None:
    """The second half of every step: gradients of the loss, clipped to the norm `clip`, the optimizer, the EMA."""
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()
    if ema is not None:
        ema.update()


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
    """One step of training, called with a batch; returns the five losses (5,).

    Args:
        model: the network, or DDP around it.
        bins: the model's bins.
        graphed: record the step (GPU, one process). The optimizer must be made for it.
        reduce: averages the loss normalisers over the processes of a run.
        ema: the moving average of the weights, updated by every step.
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
        optimizer_step(losses.total, self.parameters, self.optimizer, clip=self.config.clip, ema=self.ema)
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


def spotting_loss(logits: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    """Focal loss of logits against targets in [0, 1], any equal shapes → their mean; between 0 and 1, in proportion."""
    return soft_focal_bce(logits, target, gamma=gamma, alpha=alpha).mean()


class SpotStep:
    """One step of pre-training, called with runs of frames; returns the loss.

    Never waits for the host. On a GPU: bf16 where it is safe, channels last, fused kernels if `config.compile`.
    """

    def __init__(
        self, *, backbone: Backbone, optimizer: torch.optim.Optimizer, ema: Ema | None, config: PretrainTrainConfig
    ) -> None:
        self.backbone, self.optimizer, self.ema, self.config = backbone, optimizer, ema, config
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        on_gpu = self.device.type == "cuda"
        self._half = on_gpu and config.precision == "bf16"
        self._logits: Callable[[Tensor], Tensor] = self.logits
        if on_gpu and config.compile:
            self._logits = torch.compile(self.logits, dynamic=False)

    def logits(self, pictures: Tensor) -> Tensor:
        """Runs (B, P, H, W) in [0, 1] → logits (B, n, C)."""
        backbone = self.backbone
        return backbone.classifier(backbone.dropout(backbone.runs(pictures)))

    def __call__(self, pictures: Tensor, how: Augmentation, target: Tensor) -> Tensor:
        """Runs (B, P, H, W) uint8, their changes, and the targets of their snippets (B, n, C) → the loss, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        x, target = apply_augmentation(pictures, how), mix(target, how)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._half):
            logits = self._logits(x)
        loss = spotting_loss(logits, target, alpha=self.config.focal_alpha, gamma=self.config.focal_gamma)
        optimizer_step(loss, self.parameters, self.optimizer, clip=self.config.clip, ema=self.ema)
        return loss.detach()

"""An end-to-end model, how it is built and loaded, and one step of its training."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ballcast import __version__
from ballcast.core.actions import ACTIONS, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.embedded import BACKBONE, MODEL, named_backbone
from ballcast.core.errors import BallcastWarning, InputError, first_line
from ballcast.data.labels.games import Game
from ballcast.features.backbone import Backbone, pad_frames, read_about
from ballcast.features.frame_network import rgb_to_planes
from ballcast.features.imagenet import began_with, describe_games, is_backbone, load_imagenet
from ballcast.features.stack_index import snippet_count, snippet_middle, stack_frames, start_frame
from ballcast.loss.criterion import Criterion, Losses, Reduce, soft_focal_bce
from ballcast.loss.matcher import Targets
from ballcast.model.anticipator import Anticipator, read_config
from ballcast.model.slots import Slots
from ballcast.training.augment import Augmentation, apply_augmentation, mix
from ballcast.training.ema import Ema
from ballcast.training.steps import optimizer_step


class EndToEnd(nn.Module):
    """Frames (B, W · F, H, W) in [0, 1] → `Slots`; F frames of a window are read, `frame_offsets` says which.

    In colour a frame is three planes one after the other, (B, W · 3 F, H, W).

    Args:
        backbone: the frame encoder.
        anticipator: of the same clips and width.
        classes: of other label sets, for a spotting head each; for training only.

    Attributes:
        frame_offsets: (W · F,) int64, the frames it reads, counted from the first of its windows.
        stack_offsets: (W · N,) int64, the first frame of each stack, counted in the same way.
        span: frames of all its windows.
        middles: (N,) int64, the middle frame of each stack, counted from its window's first.
    """

    _index: Tensor

    def __init__(self, backbone: Backbone, anticipator: Anticipator, classes: Sequence[int] = ()) -> None:
        super().__init__()
        self.backbone, self.anticipator = backbone, anticipator
        config, self.windows = backbone.config, anticipator.config.windows
        self.stacks = snippet_count(config)  # N
        read = stack_frames(config, self.stacks)  # (N, stack)
        used = np.unique(read)  # (F,)
        self.colour = config.colour
        starts = WINDOW_FRAMES * np.arange(self.windows)
        self.frame_offsets = (starts[:, None] + used).ravel()
        begins = start_frame(config, np.arange(self.stacks))  # (N,)
        self.stack_offsets = (starts[:, None] + begins).ravel()
        self.span = WINDOW_FRAMES * self.windows
        self.middles = begins + snippet_middle(config)
        self.register_buffer("_index", torch.from_numpy(np.searchsorted(used, read)), persistent=False)  # (N, stack)
        with torch.no_grad():
            dim = anticipator.encode_window(torch.zeros(1, self.stacks, config.width)).shape[-1] if classes else 0
        self.heads = nn.ModuleList(nn.Linear(dim, count) for count in classes)

    def features(self, frames: Tensor) -> Tensor:
        """Frames (B, W · F, H, W), or in colour (B, W · 3 F, H, W) → features (B, W, N, D)."""
        padding, pairs = self.backbone.config.padding, self.backbone.config.colour
        if torch.is_autocast_enabled(frames.device.type):  # before they are gathered, three times each
            frames = frames.to(torch.get_autocast_dtype(frames.device.type))
        x = pad_frames(frames.unflatten(1, (self.windows, -1)).flatten(0, 1), padding, pairs=pairs)
        stacks = rgb_to_planes(x.unflatten(1, (-1, 3)), self._index) if self.colour else x[:, self._index]
        stacks = stacks.flatten(0, 1)  # (B · W · N, planes, H, W)
        maps = self.backbone.encode(stacks.contiguous(memory_format=torch.channels_last))
        return self.backbone.mix(maps).unflatten(0, (-1, self.windows, self.stacks))

    def forward(self, seen: Tensor) -> tuple[Slots, list[Tensor]]:
        """The slots, and spotting logits (B, N, C) of each further label set.

        Args:
            seen: frames, or their features (B, W · N, D) if they are there.
        """
        features = seen.unflatten(1, (self.windows, self.stacks)) if seen.ndim == 3 else self.features(seen)
        tokens = self.anticipator.encode_window(features)
        return self.anticipator.anticipate(tokens), [head(tokens[:, -1]) for head in self.heads]


def build_learner(
    recipe: Recipe,
    games: list[Game],
    folder: Path,
    size: tuple[int, int],
    *,
    resumed: bool,
    classes: Sequence[int] = (),
) -> EndToEnd:
    """Build encoder and anticipator before their first step; of a resumed run, the weights are still to be loaded.

    Args:
        recipe: of the run; its seed draws the weights.
        games: that it is trained on, for the metadata.
        folder: the run's folder.
        size: H, W of the frames.
        resumed: take the metadata from the run's last model.
        classes: number of classes of each further label set.
    """
    torch.manual_seed(recipe.train.seed)
    config, start = recipe.encoder, recipe.encoder.start
    backbone = Backbone(config.network, name="ballcast-frames")
    model = Anticipator(recipe.model, emit=recipe.emission, metadata={"pos_weight": recipe.loss.pos_weight})
    names = [game.name for game in games]
    about = {"trained_on": names, "seed": recipe.train.seed, "ballcast": __version__, "picture_size": list(size)}
    if resumed:
        saved = read_about(folder / "last_backbone")
        backbone.metadata, backbone.note = saved.get("metadata", {}), saved.get("note", "")
        model.metadata = read_config(folder / "last").metadata
        if config.features:  # needed before the state is loaded
            backbone.load_state_dict(Backbone.from_pretrained(folder / "last_backbone").state_dict())
    elif start == "imagenet":
        backbone.metadata["start"] = load_imagenet(backbone, "encoder.start")
    elif start == "scratch":
        backbone.metadata["start"] = start
    else:
        encoder, head = load_start(start)
        if encoder.config != config.network or (head and head.config != recipe.model):
            raise InputError(
                f"{start}: its sizes are not those of the recipe; give the recipe it was trained with, or "
                "for a new head the folder of its encoder, such as runs/e2e/best_backbone"
            )
        backbone.load_state_dict(encoder.state_dict())
        if head:
            model.load_state_dict(head.state_dict())
        if not config.learns:
            backbone.metadata, backbone.note = dict(encoder.metadata), encoder.note
        backbone.metadata |= began_with(encoder)
    if config.learns:
        backbone.metadata |= {**about, "task": "anticipation", "actions": list(ACTIONS)}
        backbone.note = f"learned end to end on {describe_games(names)}"
    backbone.metadata["picture_size"] = list(size)
    model.metadata |= {**about, "trained_on": list(recipe.games.train), "validated_on": list(recipe.games.valid)}
    backbone.classifier.requires_grad_(False)  # the anticipator spots
    if not config.learns:
        backbone.requires_grad_(False)
    if config.recompute:
        backbone.encoder.network.set_grad_checkpointing(True)  # type: ignore[union-attr, operator]
    return EndToEnd(backbone.train(), model.train(), classes)


def load_start(start: str) -> tuple[Backbone, Anticipator | None]:
    """Load what a training starts from: a frame encoder, and its anticipator if `start` is not the encoder's folder."""
    if start != "embedded" and is_backbone(Path(start)):
        return Backbone.from_pretrained(start), None
    given = load_learner(MODEL, BACKBONE) if start == "embedded" else load_learner(Path(start))
    return given.backbone, given.anticipator


def load_learner(folder: Path, encoder: Path | None = None) -> EndToEnd:
    """Load an end-to-end model from the folder of its anticipator, its encoder from where the metadata name it."""
    model = Anticipator.from_pretrained(folder)
    place = encoder or named_backbone(folder)
    if place is None:
        raise InputError(f"{folder}: names no encoder; give the best or last of a run with train.backbone=end_to_end")
    return EndToEnd(Backbone.from_pretrained(place), model).eval()


@dataclass
class SampleBatch:
    """B samples of a step.

    - `seen` (B, W · F, H, W) uint8, or I420: frames; or (B, W · N, D) float32: features.
    - `classes`, `position_ms` (B, 8): the actions to come.
    - `presence`: for each label set the spotting targets (B, N, C).
    - `source` (B,) int64: the label set of the sample, 0 for the ten actions.
    """

    seen: Tensor
    classes: Tensor
    position_ms: Tensor
    presence: list[Tensor]
    source: Tensor


class EndToEndStep:
    """One step of training end to end; returns the five losses (5,). On a GPU: bf16, channels last.

    Args:
        learner: encoder and anticipator.
        wrapped: the learner, or DDP around it.
        criterion, optimizer, ema, recipe: of the run.
        reduce: averages the loss normalisers over the processes of a run.
    """

    def __init__(
        self,
        *,
        learner: "EndToEnd",
        wrapped: nn.Module,
        criterion: Criterion,
        optimizer: torch.optim.Optimizer,
        ema: Ema | None,
        recipe: Recipe,
        reduce: Reduce | None = None,
    ) -> None:
        self.learner, self.wrapped, self.criterion = learner, wrapped, criterion
        self.optimizer, self.ema, self.recipe, self.reduce = optimizer, ema, recipe, reduce
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        device = self.parameters[0].device
        self._half = device.type == "cuda" and recipe.train.precision == "bf16"
        self._losses: Callable[..., Losses] = self.losses
        if device.type == "cuda" and recipe.train.compile:
            self._losses = torch.compile(self.losses, dynamic=False)

    def losses(self, batch: SampleBatch, how: Augmentation) -> Losses:
        """The losses of a batch; MixUp counts the targets of both samples, each by its share."""
        frames = batch.seen.ndim > 3
        seen = apply_augmentation(batch.seen, how, colour=self.learner.colour) if frames else mix(batch.seen, how)
        with torch.autocast(seen.device.type, torch.bfloat16, enabled=self._half):
            slots, logits = self.wrapped(seen)
        bins, config = self.recipe.model.bins, self.recipe.loss
        classes, position_ms, source = batch.classes, batch.position_ms, batch.source
        presence, weight = batch.presence, torch.ones_like(how.share)
        if self.recipe.augment.mixup:
            classes, position_ms, source, *presence = (
                torch.cat([t, t[how.partner]]) for t in (classes, position_ms, source, *presence)
            )
            slots, logits = slots.map(lambda t: torch.cat([t, t])), [torch.cat([t, t]) for t in logits]
            weight = torch.cat([how.share, 1 - how.share])
        targets = Targets.from_ms(classes, position_ms, bins, presence[0])
        losses: Losses = self.criterion(slots, targets, weight * (source == 0), reduce=self.reduce)
        for number, (given, truth) in enumerate(zip(logits, presence[1:], strict=True), start=1):
            of_set = (weight * (source == number))[:, None, None]
            focal = soft_focal_bce(given, truth, gamma=config.focal_gamma, alpha=config.focal_alpha) * of_set
            other = focal.sum() / (truth * of_set).sum().clamp(min=1)
            total, auxiliary = losses.total + config.auxiliary * other, losses.auxiliary + other
            losses = losses._replace(total=total, auxiliary=auxiliary)
        return losses

    def __call__(self, batch: SampleBatch, how: Augmentation) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        losses = self._losses(batch, how)
        optimizer_step(losses.total, self.parameters, self.optimizer, clip=self.recipe.train.clip, ema=self.ema)
        return torch.stack(losses).detach()


def use_triton(network: nn.Module) -> None:
    """Let our Triton kernels compute what they can of a timm network in training, where Triton is installed and works.

    It needs a C compiler. Where a first kernel fails, warn and go on without.
    """
    if find_spec("triton") is None:
        return
    try:
        from ballcast.training.triton_layers import try_kernels, use_triton_layers

        try_kernels(next(network.parameters()).device)
    except Exception as error:  # Triton raises whatever its compilers and drivers lead to
        warnings.warn(
            f"training runs without Triton, which takes longer: {first_line(error)}", BallcastWarning, stacklevel=2
        )
        return
    use_triton_layers(network)


@contextmanager
def allow_tf32(device: torch.device) -> Iterator[None]:
    """On a GPU, within the block: float32 products use TF32.

    cuDNN does not try its algorithms on each shape: on batches of a thousand stacks that takes minutes.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

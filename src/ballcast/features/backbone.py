"""The backbone network (MultiDimStacker): snippets of 15 gray frames to features, and its files."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.functional import conv2d, silu

from ballcast.core import config as configs
from ballcast.core import hub
from ballcast.core.backbone_config import BackboneConfig, BackboneIdentity, Preprocessing, padding_sides, trained_size
from ballcast.core.checks import check_pair, check_weights, show
from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json, write_pair
from ballcast.features.frame_network import FrameNetwork, create_network, earlier, i420_to_planes, later, pad_i420
from ballcast.features.stack_index import batch_stacks, run_stacks, snippet_span
from ballcast.publish.cards import backbone_card


class NormAct(nn.BatchNorm2d):
    """Batch norm, then SiLU unless `act` is false; (B, C, h, w) in and out."""

    def __init__(self, channels: int, *, act: bool = True) -> None:
        super().__init__(channels)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return silu(x) if self.act else x


class SqueezeExcite(nn.Module):
    """A gate per snippet and channel, from the mean over the snippet's stacks and pixels."""

    def __init__(self, *, channels: int, ratio: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, channels // ratio, 1)
        self.conv_expand = nn.Conv2d(channels // ratio, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, J, C, h, w) in and out."""
        gate = x.mean((1, 3, 4))[:, :, None, None]  # (B, C, 1, 1)
        gate = self.conv_expand(silu(self.conv_reduce(gate))).sigmoid()
        return x * gate[:, None]


class InvertedResidual3d(nn.Module):
    """Expand, mix stacks and pixels depthwise 3×3×3, gate, project, and add.

    Split at the expansion: `expand` sees single stacks, so for stacks that several snippets share it runs only once.
    """

    def __init__(self, *, channels: int, expansion: int, se_ratio: int, drop_path: float = 0.0) -> None:
        from timm.layers import DropPath

        super().__init__()
        inner = channels * expansion
        self.conv_pw = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = NormAct(inner)
        self.conv_dw = nn.Conv3d(inner, inner, 3, padding=1, groups=inner, bias=False)
        self.bn2 = NormAct(inner)
        self.se = SqueezeExcite(channels=inner, ratio=se_ratio)
        self.conv_pwl = nn.Conv2d(inner, channels, 1, bias=False)
        self.bn3 = NormAct(channels, act=False)
        self.drop_path = DropPath(drop_path)

    def expand(self, x: Tensor) -> Tensor:
        """(S, C, h, w) single stacks → (S, C', h, w)."""
        return self.bn1(self.conv_pw(x))

    def depthwise(self, expanded: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
        """Single stacks (S, C', h, w), which `gather` makes (B, J, C', h, w) → convolved 3×3×3 over (J, h, w)."""
        if not use_2d_convolutions(expanded):
            return self.conv_dw(gather(expanded).transpose(1, 2)).transpose(1, 2)
        # Each tap in time is a 2D convolution of single stacks, so it runs only once for stacks that snippets share.
        x = expanded.contiguous(memory_format=torch.channels_last)
        taps = (conv2d(x, tap, padding=1, groups=len(tap)) for tap in self.conv_dw.weight.unbind(2))  # (C', 1, 3, 3)
        before, present, after = (gather(tap) for tap in taps)
        return (present.float() + earlier(before) + later(after)).to(present.dtype)

    def mix(self, expanded: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
        """Single stacks (S, C', h, w), which `gather` makes (B, J, C', h, w) → the residual branch (B, J, C, h, w)."""
        y = self.depthwise(expanded, gather)
        J = y.shape[1]
        y = self.bn2(y.flatten(0, 1)).unflatten(0, (-1, J))  # (B, J, C', h, w)
        y = self.bn3(self.conv_pwl(self.se(y).flatten(0, 1)))  # (B·J, C, h, w)
        return self.drop_path(y.unflatten(0, (-1, J)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, J, C, h, w) in and out."""
        return x + self.mix(self.expand(x.flatten(0, 1)), lambda stacks: stacks.unflatten(0, (-1, x.shape[1])))


def use_2d_convolutions(x: Tensor) -> bool:
    """Whether depthwise 3×3×3 convolutions run as 2D ones: in inference on a GPU, where PyTorch's 3D kernel is slow."""
    return x.is_cuda and not torch.is_grad_enabled()


class GeM(nn.Module):
    """Generalised mean over pixels, (mean xᵖ)^(1/p) with a learnable p, always in float32; (B, C, h, w) → (B, C)."""

    def __init__(self, *, p: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.full((1,), p))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        p = self.p.float()
        return x.float().clamp(min=self.eps).pow(p).mean((2, 3)).pow(1 / p)


CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
KIND = "ballcast-backbone"
LATER = {"colour": False, "shift": "none"}  # keys of the config that version 0.1 did not have, with their defaults


class Backbone(nn.Module):
    """The backbone: a 2D network on stacks of frames, 3D blocks across a snippet's stacks, pooling and a classifier.

    Args:
        config: its sizes.
        name: what people call it.
        fold: the fold an imported spotting model held out.
        note: what its user should know; recorded, like the fold, in every store made with it.
        metadata: where it comes from: training games, scores; plain JSON, saved with it.
    """

    def __init__(
        self,
        config: BackboneConfig = BackboneConfig(),
        *,
        name: str = KIND,
        fold: str | None = None,
        note: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.name = name
        self.fold = fold
        self.note = note
        self.metadata = metadata if metadata is not None else {}
        c = config
        self.encoder: nn.Module
        self.dropout = nn.Dropout(c.dropout)
        if not c.blocks:
            self.encoder = FrameNetwork(c)
            self.project2d = nn.Sequential(nn.Conv2d(self.encoder.width, c.projected, 1))
            self.classifier = nn.Linear(c.width, c.classes)
            return
        encoder = create_network(c, features_only=True, out_indices=(4,))
        self.encoder = encoder
        reduced = cast(Any, encoder).feature_info.channels()[-1]
        self.project2d = nn.Sequential(nn.Conv2d(reduced, c.channels, 1, bias=False), NormAct(c.channels))
        self.blocks = nn.ModuleList(
            InvertedResidual3d(channels=c.channels, expansion=c.expansion, se_ratio=c.se_ratio, drop_path=c.drop_path)
            for _ in range(c.blocks)
        )
        self.project3d = nn.Sequential(nn.Conv2d(c.channels, c.projected, 1, bias=False), NormAct(c.projected))
        self.pool = GeM()
        self.classifier = nn.Linear(c.width, c.classes)

    def encode(self, stacks: Tensor) -> Tensor:
        """Stacks in [0, 1], (S, planes, H, W) with H and W padded → maps (S, C, h, w), of a frame encoder (S, D, 1, 1).

        With a temporal shift, S is a multiple of the N stacks of a window, window by window.
        """
        return self.project2d(self.encoder(stacks)[-1])

    def mix(self, maps: Tensor, index: Tensor | None = None) -> Tensor:
        """Maps of stacks (S, C, h, w) → features (B, D) float32.

        `index` (B, J): the stacks of each snippet; without it, every J in a row are one.
        """

        def gather(x: Tensor) -> Tensor:  # (S, …) → (B, J, …)
            return x[index] if index is not None else x.unflatten(0, (-1, self.config.stacks))

        if not self.config.blocks:
            return (maps if index is None else maps[index.flatten()]).flatten(1).float()
        first, *rest = cast(list[InvertedResidual3d], list(self.blocks))
        x = gather(maps) + first.mix(first.expand(maps), gather)  # (B, J, C, h, w); shared stacks expand once
        for block in rest:
            x = block(x)
        x = self.project3d(x.flatten(0, 1)).unflatten(0, (-1, self.config.stacks))  # (B, J, P, h, w)
        return self.pool(x.flatten(1, 2))  # (B, J·P)

    def features(self, frames: Tensor) -> Tensor:
        """A snippet's sampled frames (B, frames, H, W), uint8, or floats in [0, 1] → features (B, D) float32.

        Colour frames are I420, (B, frames, 3H/2, W) uint8. With a temporal shift, B is a multiple of a window's N.
        """
        x = self.padded(frames)
        return self.mix(self.encode(self.scaled(x.unflatten(1, (-1, self.config.stack)).flatten(0, 1))))

    def padded(self, frames: Tensor) -> Tensor:
        """Frames (…, H, W), or I420 (…, 3H/2, W) → the same with H and W a multiple of `padding`."""
        return (pad_i420 if self.config.colour else pad_frames)(frames, self.config.padding)

    def scaled(self, stacks: Tensor) -> Tensor:
        """Padded stacks (S, stack, H, W) uint8, or I420 (S, stack, 3H/2, W) → (S, planes, H, W) in [0, 1].

        Floats stay as they are.
        """
        if stacks.dtype != torch.uint8:
            return stacks
        return i420_to_planes(stacks) if self.config.colour else stacks / 255

    def runs(self, frames: Tensor) -> Tensor:
        """Runs of sampled frames (B, stack · (n + J − 1), H, W), uint8, or floats in [0, 1] → features (B, n, D).

        A run's n snippets begin a stack apart and share their stacks, so that it costs n + J − 1 stacks and not n · J.
        """
        stacks = self.padded(frames).unflatten(1, (-1, self.config.stack))  # (B, S, stack, H, W)
        B, S = stacks.shape[:2]
        arange = partial(torch.arange, device=frames.device)
        index = batch_stacks(run_stacks(self.config, S, arange), batch=B, stacks=S, arange=arange)  # (B, n, J)
        stacks = self.scaled(stacks.flatten(0, 1)).contiguous(memory_format=torch.channels_last)
        return self.mix(self.encode(stacks), index.flatten(0, 1)).unflatten(0, (B, -1))

    def forward(self, frames: Tensor) -> Tensor:
        """A snippet's sampled frames (B, frames, H, W) → spotting logits (B, classes)."""
        return self.classifier(self.dropout(self.features(frames)))

    def snippets(self, frames: np.ndarray | Tensor) -> Tensor:
        """Consecutive frames (T, H, W) uint8 → features of every snippet, one every `stride` frames, (n, D) float32.

        Each call builds a `ballcast.features.batch_encoder.BatchEncoder`; build one yourself for many calls.
        """
        from ballcast.features.batch_encoder import BatchEncoder

        return BatchEncoder(self, compiled=False).snippets(frames)

    # ------------------------------------------------------------------------------------------ identity and files

    @property
    def hash(self) -> str:
        """sha256 over config and weights: two backbones with one hash compute the same features."""
        # Keys that came later count only where they are set, so that the hashes of older backbones stay.
        sizes = {k: v for k, v in configs.to_dict(self.config).items() if k not in LATER or v != LATER[k]}
        digest = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode())
        for key, value in sorted(self.state_dict().items()):
            digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @property
    def identity(self) -> BackboneIdentity:
        """What a store records of its backbone."""
        games = map(str, [*self.metadata.get("trained_on", ()), *self.metadata.get("started_on", ())])
        return BackboneIdentity(self.hash, self.name, self.fold, self.note, tuple(dict.fromkeys(games)))

    def preprocessing(self, precision: str, picture_size: tuple[int, int] | None = None) -> Preprocessing:
        """What a store records of the frames' way into the network; picture_size: H, W they were fitted into."""
        c = self.config
        return Preprocessing(c.frames, c.step, c.stack, snippet_span(c), c.stride, c.padding, precision, picture_size)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors`; an existing backbone there is replaced."""
        folder = Path(folder)
        state = {key: value.detach().cpu().contiguous() for key, value in self.state_dict().items()}
        about: dict[str, Any] = {"kind": KIND, "name": self.name, "fold": self.fold, "note": self.note}
        about |= {"metadata": self.metadata} if self.metadata else {}
        about |= {"config": configs.to_dict(self.config)}
        write_pair(folder, WEIGHTS_FILE, save(state), CONFIG_FILE, about)

    @classmethod
    def from_pretrained(cls, source: Path | str) -> "Backbone":
        """A backbone that `save_pretrained` wrote: its folder, or the id of a repository on the hub."""
        folder = hub.locate(source, (CONFIG_FILE, WEIGHTS_FILE))
        about = read_about(folder)
        path = folder / WEIGHTS_FILE
        config = configs.from_dict(BackboneConfig, about["config"], str(folder / CONFIG_FILE))
        if not path.is_file():
            raise InputError(f"{folder}: has no {WEIGHTS_FILE}; give the folder of a backbone")
        raw = read_bytes(path, "backbone's weights")
        try:
            state = load(raw)
        except Exception as error:  # safetensors has one error class for all damage, and it is not public
            raise InputError(f"{path}: cannot be read ({str(error)[:200]}); fetch it again") from None
        with torch.device("meta"):  # no memory yet: the config may name any size
            check_weights(cls(config).state_dict(), state, str(path))
        check_pair(path, raw, folder / CONFIG_FILE, about)
        name = about.get("name", folder.name)
        note = about.get("note", "")
        backbone = cls(config, name=name, fold=about.get("fold"), note=note, metadata=about.get("metadata", {}))
        return backbone.fill(state, str(path))

    def push_to_hub(
        self, repo_id: str, *, private: bool = True, licence: str = "apache-2.0", folder: Path | None = None
    ) -> str:
        """Upload what `save_pretrained` writes, and a card with its metadata; returns the address.

        `licence`: of the weights, by the hub's short name. `folder`: where it was read from, if it has not changed
        since; then those files go as they are.
        """
        card = backbone_card(repo_id, self, licence=licence)
        names = (CONFIG_FILE, WEIGHTS_FILE)
        return hub.push_model(repo_id, names, self.save_pretrained, card, private=private, folder=folder)

    @classmethod
    def from_lromul(cls, path: Path | str, *, fold: str | None = None) -> "Backbone":
        """A published MultiDimStacker checkpoint; warns of its leak, records its fold and the size of its frames."""
        from ballcast.features.lromul import read_checkpoint

        checkpoint = read_checkpoint(Path(path), fold=fold)
        with torch.device("meta"):  # no memory yet: its shapes may be of any size
            check_weights(cls(checkpoint.config).state_dict(), checkpoint.state, str(path))
        size = checkpoint.picture_size
        about = {"picture_size": list(size)} if size else {}
        backbone = cls(
            checkpoint.config, name=checkpoint.name, fold=checkpoint.fold, note=checkpoint.note, metadata=about
        )
        return backbone.fill(checkpoint.state, str(path))

    @classmethod
    def load(cls, source: Path | str) -> "Backbone":
        """Whatever `source` names: a backbone's folder, a published checkpoint file, or a hub id."""
        return cls.from_lromul(source) if Path(source).is_file() else cls.from_pretrained(source)

    def fill(self, state: dict[str, Tensor], where: str) -> "Backbone":
        """Itself in eval mode with the weights `state`; a key or shape that does not fit is an error with its place."""
        check_weights(self.state_dict(), state, where)
        self.load_state_dict(state)
        return self.eval()


def read_about(folder: Path) -> dict[str, Any]:
    """Read a backbone's `config.json` and check the types of name, fold, note, metadata and config."""
    path = folder / CONFIG_FILE
    about = read_json(path, "backbone's config")
    if not isinstance(about, dict) or about.get("kind") != KIND:
        raise InputError(f"{path}: is not the config of a ballcast backbone")
    kinds: dict[str, Any] = {"name": str, "fold": str | None, "note": str, "metadata": dict, "config": dict}
    about.setdefault("config", {})
    for key, kind in kinds.items():
        if key in about and not isinstance(about[key], kind):
            raise InputError(f"{path}: '{key}' is {show(about[key])}, which is not what `save_pretrained` writes there")
    for key in ("trained_on", "started_on"):
        games = about.get("metadata", {}).get(key, [])
        if not isinstance(games, list) or not all(isinstance(game, str) for game in games):
            raise InputError(f"{path}: 'metadata.{key}' must be a list of games' names")
    trained_size(about.get("metadata", {}), str(path))
    return about


def pad_frames(frames: Tensor, multiple: int, *, pairs: bool = False) -> Tensor:
    """Zero-pad (…, H, W) to a multiple, the frame centred, an odd row or column after it.

    pairs: as `pad_i420` does, for the red, green and blue of a frame encoder that sees colour.
    """
    sides = padding_sides(frames.shape[-2], frames.shape[-1], multiple, pairs=pairs)
    return nn.functional.pad(frames, sides) if any(sides) else frames

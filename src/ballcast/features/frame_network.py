"""The 2D network of a frame encoder: any of timm's with its pooling, temporal shift, padding and colour of frames."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from ballcast.core.backbone_config import BackboneConfig, padding_sides
from ballcast.core.errors import InputError, first_line
from ballcast.features.stack_index import snippet_count

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue: BT.601


def create_network(config: BackboneConfig, **options: Any) -> nn.Module:
    """Build timm's network `config.encoder` with random weights; an InputError where timm has none of that name."""
    import timm  # when a network is built: importing it takes as long as torch

    name = config.encoder
    if not timm.is_model(name):  # a name like hf-hub:… would make timm fetch one
        raise InputError(f"encoder: timm has no network called {name!r}")
    try:
        return timm.create_model(
            name, pretrained=False, in_chans=config.planes, drop_path_rate=config.drop_path, **options
        )
    except (RuntimeError, TypeError, AssertionError, ValueError, LookupError) as error:
        raise InputError(f"encoder: timm's {name} has no maps of five scales to give ({first_line(error)})") from None


def to_channels_last(network: nn.Module) -> None:
    """Lay out the weights of all 2D convolutions as channels last; those of 3D ones, as of a gated shift, stay."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)


class TemporalShift(nn.Module):
    """Shift an eighth of the channels one frame back and an eighth one forward in time (TSM); causal: a quarter back.

    Args:
        channels: of its input.
        frames: N, frames of a window; the batch (B N, C, h, w) is B windows, one after the other.
        causal: let a frame see earlier frames only.
    """

    def __init__(self, *, channels: int, frames: int, causal: bool = False) -> None:
        super().__init__()
        self.frames = frames
        self.causal = causal
        self.part = max(1, channels // (4 if causal else 8))

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unflatten(0, (-1, self.frames))  # (B, N, C, h, w)
        past = windows[:, :, : self.part]
        other = windows[:, :, self.part :]
        parts = [earlier(past)]
        if not self.causal:
            parts.append(later(other[:, :, : self.part]))
            other = other[:, :, self.part :]
        return torch.cat([*parts, other], dim=2).flatten(0, 1)


def earlier(x: Tensor) -> Tensor:
    """(B, N, C, h, w): each frame has the values of the frame before it, the first one zeros."""
    return nn.functional.pad(x[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))


def later(x: Tensor) -> Tensor:
    """(B, N, C, h, w): each frame has the values of the frame after it, the last one zeros."""
    return nn.functional.pad(x[:, 1:], (0, 0, 0, 0, 0, 0, 0, 1))


class GatedShift(nn.Module):
    """Gate-shift-fuse (Sudhakaran et al. 2023) on a quarter of the channels; for the arguments see `TemporalShift`.

    A gate in (−1, 1) for each pixel and half of these channels chooses what is shifted, one half back and one forward;
    what is shifted and what stays are then added, weighted by channel.
    """

    def __init__(self, *, channels: int, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.part = max(1, channels // 8)
        self.norm = nn.BatchNorm3d(2 * self.part)
        self.gate = nn.Conv3d(2 * self.part, 2, 3, padding=1, groups=2)
        self.fuse = nn.ModuleList(nn.Conv2d(2, 1, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unflatten(0, (-1, self.frames)).transpose(1, 2)  # (B, C, N, h, w)
        moving = windows[:, : 2 * self.part]
        rest = windows[:, 2 * self.part :]
        gates = torch.tanh(self.gate(torch.relu(self.norm(moving))))  # (B, 2, N, h, w)
        halves = []
        for i, shift in enumerate((earlier, later)):
            channels = moving[:, i * self.part : (i + 1) * self.part]
            gated = gates[:, i : i + 1] * channels
            moved = shift(gated.transpose(1, 2)).transpose(1, 2)
            stays = channels - gated
            means = torch.stack([moved.mean((3, 4)), stays.mean((3, 4))], dim=1)  # (B, 2, C/8, N)
            weight = torch.sigmoid(self.fuse[i](means)).squeeze(1)[..., None, None]  # (B, C/8, N, 1, 1)
            halves.append(weight * moved + (1 - weight) * stays)
        return torch.cat([*halves, rest], dim=1).transpose(1, 2).flatten(0, 1)


class FrameNetwork(nn.Module):
    """timm's network with its pooling: stacks (S, planes, H, W) → [(S, F, 1, 1)]; `width` is F.

    With `config.shift`, the first convolution of each residual block from the third stage on reads shifted channels.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        network = create_network(config, num_classes=0)
        self.network = network
        self.width = int(cast(Any, network).num_features)
        head = getattr(network, "head_hidden_size", None)
        self.width = int(head) if head else self.width
        if config.shift != "none":
            insert_shift(network, config)

    def forward(self, stacks: Tensor) -> list[Tensor]:
        return [self.network(stacks)[:, :, None, None]]


def insert_shift(network: nn.Module, config: BackboneConfig) -> None:
    """Put a temporal shift before the first convolution of every residual block from the third stage on."""
    frames = snippet_count(config)
    stages = getattr(network, "blocks", None)  # EfficientNets
    if stages is None:
        stages = [getattr(network, name) for name in ("s1", "s2", "s3", "s4") if hasattr(network, name)]  # RegNets
        stages = stages or [getattr(network, f"layer{i}") for i in range(1, 5) if hasattr(network, f"layer{i}")]
    placed = 0
    for stage in list(stages)[2 if len(list(stages)) > 4 else 1 :]:
        for block in stage.children():
            for name in ("conv_pw", "conv1"):
                conv = getattr(block, name, None)
                if conv is None:
                    continue
                channels = cast(nn.Conv2d, getattr(conv, "conv", conv)).in_channels
                shift: nn.Module = (
                    GatedShift(channels=channels, frames=frames)
                    if config.shift == "gated"
                    else TemporalShift(channels=channels, frames=frames, causal=config.shift == "causal")
                )
                setattr(block, name, nn.Sequential(shift, conv))
                placed += 1
                break
    if not placed:
        raise InputError(
            f"shift: timm's {config.encoder} has no residual blocks that are known here; use an EfficientNet, a RegNet "
            "or a ResNet, or shift=none"
        )


def pad_i420(frames: Tensor, multiple: int) -> Tensor:
    """Pad I420 (…, 3H/2, W) uint8 with black so that H and W are a multiple, by an even number of rows and columns."""
    planes = i420_planes(frames)
    sides = padding_sides(planes[0].shape[-2], planes[0].shape[-1], multiple, pairs=True)
    if not any(sides):
        return frames
    half = [side // 2 for side in sides]
    padded = [
        nn.functional.pad(planes[0], sides, value=16),
        *(nn.functional.pad(p, half, value=128) for p in planes[1:]),
    ]
    return torch.cat([plane.flatten(-2) for plane in padded], dim=-1).unflatten(-1, (-1, padded[0].shape[-1]))


def i420_planes(frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """I420 (…, 3H/2, W) → its planes Y (…, H, W), U and V (…, H/2, W/2)."""
    rows = frames.shape[-2]
    W = frames.shape[-1]
    H = rows * 2 // 3
    y = frames[..., :H, :]
    colours = frames[..., H:, :].flatten(-2).unflatten(-1, (2, H // 2, W // 2))
    return y, colours[..., 0, :, :], colours[..., 1, :, :]


def mirror(frames: Tensor, *, colour: bool) -> Tensor:
    """Frames (…, H, W), or with `colour` I420 (…, 3H/2, W), with left and right exchanged."""
    if not colour:
        return frames.flip(-1)
    y, u, v = (plane.flip(-1) for plane in i420_planes(frames))
    chroma = torch.stack([u, v], dim=-3).flatten(-3).unflatten(-1, (-1, frames.shape[-1]))  # (…, H/2, W)
    return torch.cat([y, chroma], dim=-2)


def i420_to_rgb(frames: Tensor) -> Tensor:
    """I420 frames (…, 3H/2, W) uint8 → red, green and blue in [0, 1], (…, 3, H, W) float32.

    BT.601, limited range (luma 16 to 235, chroma 16 to 240), each chroma value for its 2×2 pixels. Videos of BT.709 are
    read the same way: in training and prediction alike, so a network sees the same slightly shifted hues.
    """
    y, u, v = (plane.float() for plane in i420_planes(frames))
    chroma = torch.stack([u, v], dim=-3) - 128  # (…, 2, H/2, W/2)
    whole = torch.stack([chroma, chroma], dim=-1).flatten(-2)  # (…, 2, H/2, W); ONNX would fix the sizes of `expand`
    whole = torch.stack([whole, whole], dim=-2).flatten(-3, -2)  # (…, 2, H, W)
    u = whole[..., 0, :, :]
    v = whole[..., 1, :, :]
    gray = (y - 16) * (255 / 219)
    rgb = [gray + 1.596027 * v, gray - 0.391762 * u - 0.812968 * v, gray + 2.017232 * u]
    return (torch.stack(rgb, dim=-3) / 255).clamp(0, 1)


def i420_to_planes(stacks: Tensor) -> Tensor:
    """I420 stacks (S, stack, 3H/2, W) uint8 → the network's input (S, stack + 2, H, W) in [0, 1].

    The middle frame is red, green and blue; the frames beside it are their luma, (Y − 16) / 219.
    """
    middle = stacks.shape[1] // 2
    colour = i420_to_rgb(stacks[:, middle])  # (S, 3, H, W)
    H = stacks.shape[-2] * 2 // 3
    luma = [((stacks[:, k : k + 1, :H].float() - 16) / 219).clamp(0, 1) for k in range(stacks.shape[1]) if k != middle]
    return torch.cat([*luma[:middle], colour, *luma[middle:]], dim=1)


def rgb_to_planes(frames: Tensor, read: Tensor) -> Tensor:
    """Frames in colour (B, F, 3, H, W) in [0, 1] → stacks as `i420_to_planes` makes them, (B, N, stack + 2, H, W).

    Args:
        frames: F frames of each of B samples.
        read: (N, stack) int64, the frames of each stack.
    """
    middle = read.shape[1] // 2
    colour = frames[:, read[:, middle]]  # (B, N, 3, H, W)
    weights = frames.new_tensor(LUMA).view(1, 1, 3, 1, 1)
    luma = (frames * weights).sum(2)  # (B, F, H, W)
    return torch.cat([luma[:, read[:, :middle]], colour, luma[:, read[:, middle + 1 :]]], dim=2)

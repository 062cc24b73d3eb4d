"""Layers of timm's networks in Triton, for training on a GPU with channels-last activations.

- Batch norm and activation in one: an activation is read twice and written once on the way forward; on the way back it
  and its gradient are read twice, and one is written. Nothing else is stored. Sums are in float32, around the running
  mean. PyTorch's kernels for this layout take several times as long as memory needs.
- Depthwise convolutions of stride 2: without a padded copy of their input, and with a gradient that is gathered.

docs/speed.md has what they give in a step of training end to end.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from timm.layers import BatchNormAct2d, Conv2dSame
from torch import Tensor, nn

ACROSS, CHANNELS = 32, 32  # pixels and channels of a tile of a convolution
COLUMNS = 64  # of a tile; neighbours in memory
ROWS = 64  # of a tile
TILES = 32  # a program of a sum reads, at least
PROGRAMS = 1056  # of a sum: 8 for each of an H200's 132 multiprocessors
# Numbers that do not cause a recompilation; of K and C it matters whether 16 divides them.
SIZES = ["rows", "C", "parts"]
SIDES = ["H", "W", "Ho", "Wo", "top", "left"]
ACTS: dict[type[nn.Module], int] = {nn.Identity: 0, nn.ReLU: 1, nn.ReLU6: 2, nn.SiLU: 3}


@triton.jit
def _tile(rows, part, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K, C):  # type: ignore[no-untyped-def]
    """Offsets (ROWS, COLUMNS) into the activations, where they exist, and the channel of each column."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    r = part.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = (r < rows)[:, None] & (columns < K)[None, :]
    return r[:, None] * K + columns[None, :], there, columns % C


@triton.jit
def _slope(z, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """The derivative of the activation at z."""
    if ACT == 1:
        return (z > 0).to(tl.float32)
    if ACT == 2:
        return ((z > 0) & (z < 6)).to(tl.float32)
    if ACT == 3:
        s = tl.sigmoid(z)
        return s * (1 + z * (1 - s))
    return z * 0 + 1


@triton.jit
def _store_sums(out, first, second, K, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the sums over the rows of two tiles to this program's place in out (2, programs, K)."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = out + tl.program_id(0) * K + columns
    tl.store(place, tl.sum(first, 0), mask=columns < K)
    tl.store(place + tl.num_programs(0) * K, tl.sum(second, 0), mask=columns < K)


@triton.jit(do_not_specialize=SIZES)
def _sums(x, around, out, rows, K, C, parts, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """out (2, programs, K): sums of x − around, and of its squares."""
    first = tl.zeros([ROWS, COLUMNS], tl.float32)
    second = tl.zeros([ROWS, COLUMNS], tl.float32)
    for part in range(tl.program_id(0), parts, tl.num_programs(0)):
        at, there, channel = _tile(rows, tl.full([], part, tl.int64), ROWS, COLUMNS, K, C)
        shift = tl.load(around + channel)[None, :]
        value = tl.where(there, tl.load(x + at, mask=there, other=0.0).to(tl.float32) - shift, 0.0)
        first += value
        second += value * value
    _store_sums(out, first, second, K, COLUMNS)


@triton.jit(do_not_specialize=SIZES[:2])
def _apply(x, scale, shift, y, rows, K, C, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACT: tl.constexpr):  # type: ignore[no-untyped-def]
    """y = act(x · scale + shift)."""
    at, there, channel = _tile(rows, tl.program_id(0), ROWS, COLUMNS, K, C)
    z = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    z = z * tl.load(scale + channel)[None, :] + tl.load(shift + channel)[None, :]
    if ACT == 1:
        z = tl.maximum(z, 0.0)
    if ACT == 2:
        z = tl.minimum(tl.maximum(z, 0.0), 6.0)
    if ACT == 3:
        z = z * tl.sigmoid(z)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=SIZES)
def _sums_back(  # type: ignore[no-untyped-def]
    dy, x, scale, shift, mean, out, rows, K, C, parts, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACT: tl.constexpr
):
    """out (2, programs, K): sums of dz, the gradient before the activation, and of dz · (x − mean)."""
    first = tl.zeros([ROWS, COLUMNS], tl.float32)
    second = tl.zeros([ROWS, COLUMNS], tl.float32)
    for part in range(tl.program_id(0), parts, tl.num_programs(0)):
        at, there, channel = _tile(rows, tl.full([], part, tl.int64), ROWS, COLUMNS, K, C)
        value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        z = value * tl.load(scale + channel)[None, :] + tl.load(shift + channel)[None, :]
        dz = tl.load(dy + at, mask=there, other=0.0).to(tl.float32) * _slope(z, ACT)
        first += dz
        second += dz * (value - tl.load(mean + channel)[None, :])
    _store_sums(out, first, second, K, COLUMNS)


@triton.jit(do_not_specialize=SIZES[:2])
def _apply_back(  # type: ignore[no-untyped-def]
    dy,
    x,
    scale,
    shift,
    mean,
    offset,
    slant,
    dx,
    rows,
    K,
    C,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACT: tl.constexpr,
):
    """dx = scale · (dz − offset − (x − mean) · slant)."""
    at, there, channel = _tile(rows, tl.program_id(0), ROWS, COLUMNS, K, C)
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    a = tl.load(scale + channel)[None, :]
    z = value * a + tl.load(shift + channel)[None, :]
    dz = tl.load(dy + at, mask=there, other=0.0).to(tl.float32) * _slope(z, ACT)
    level = (
        tl.load(offset + channel)[None, :]
        + (value - tl.load(mean + channel)[None, :]) * tl.load(slant + channel)[None, :]
    )
    tl.store(dx + at, (a * (dz - level)).to(dx.dtype.element_ty), mask=there)


def _shape(x: Tensor) -> tuple[int, int, int]:
    """(rows, K, C): x in memory as rows of K columns, K a multiple of C and where possible of `COLUMNS`."""
    C = x.shape[1]
    pixels = x.numel() // x.shape[1]
    joined = 1
    while joined * C % COLUMNS and pixels % (2 * joined) == 0 and joined < COLUMNS:
        joined *= 2
    return pixels // joined, joined * C, C


class _NormAct(torch.autograd.Function):
    """Batch norm by the statistics of the batch, then an activation; gives y, and mean and variance (C,) of x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, around: Tensor, eps: float, act: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, K, C = _shape(x)
        parts, across = triton.cdiv(rows, ROWS), triton.cdiv(K, COLUMNS)
        programs = max(1, min(triton.cdiv(parts, TILES), triton.cdiv(PROGRAMS, across)))
        found = torch.empty(2, programs, K, device=x.device)
        _sums[programs, across](x, around, found, rows, K, C, parts, ROWS, COLUMNS)
        first, second = found.view(2, -1, C).sum(1) / (rows * K // C)
        mean = around + first
        variance = (second - first * first).clamp(min=0)
        inverse = torch.rsqrt(variance + eps)
        scale = weight.float() * inverse
        shift = bias.float() - mean * scale
        y = torch.empty_like(x)
        _apply[parts, across](x, scale, shift, y, rows, K, C, ROWS, COLUMNS, act)
        ctx.save_for_backward(x, scale, shift, mean, inverse)
        ctx.sizes = (rows, K, C, parts, across, programs)
        ctx.act = act
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Any) -> Any:
        x, scale, shift, mean, inverse = ctx.saved_tensors
        rows, K, C, parts, across, programs = ctx.sizes
        dy = dy.contiguous(memory_format=torch.channels_last)
        found = torch.empty(2, programs, K, device=x.device)
        _sums_back[programs, across](dy, x, scale, shift, mean, found, rows, K, C, parts, ROWS, COLUMNS, ctx.act)
        first, second = found.view(2, -1, C).sum(1)
        count = rows * K // C
        dx = torch.empty_like(x)
        slant = second * inverse * inverse / count
        _apply_back[parts, across](
            dy, x, scale, shift, mean, first / count, slant, dx, rows, K, C, ROWS, COLUMNS, ctx.act
        )
        return dx, second * inverse, first, None, None, None


# ------------------------------------------------------------------------- depthwise convolutions that halve the size


@triton.jit(do_not_specialize=SIDES)
def _halve(  # type: ignore[no-untyped-def]
    x, w, y, H, W, C, Ho, Wo, top, left, TAPS: tl.constexpr, ACROSS: tl.constexpr, CHANNELS: tl.constexpr
):
    """y (N, Ho, Wo, C) of x (N, H, W, C): y[h, w] = Σ x[2h + i − top, 2w + j − left] · w[i, j], zeros outside x."""
    row = tl.program_id(0).to(tl.int64)
    n = row // Ho
    h = row % Ho
    wo = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros([ACROSS, CHANNELS], tl.float32)
    for i in tl.static_range(TAPS):
        hi = 2 * h + i - top + 0 * wo  # as wide as a tile, like wi
        for j in tl.static_range(TAPS):
            wi = 2 * wo + j - left
            there = ((wi >= 0) & (wi < W) & (hi >= 0) & (hi < H))[:, None] & (c < C)[None, :]
            value = tl.load(x + ((n * H + hi) * W + wi)[:, None] * C + c[None, :], mask=there, other=0.0)
            total += value.to(tl.float32) * tl.load(w + (i * TAPS + j) * C + c, mask=c < C, other=0.0)[None, :]
    there = (wo < Wo)[:, None] & (c < C)[None, :]
    tl.store(y + (row * Wo + wo[:, None]) * C + c[None, :], total.to(y.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=SIDES)
def _halve_back(  # type: ignore[no-untyped-def]
    dy, w, dx, H, W, C, Ho, Wo, top, left, TAPS: tl.constexpr, ACROSS: tl.constexpr, CHANNELS: tl.constexpr
):
    """dx of `_halve`: dx[h, w] = Σ dy[(h + top − i) / 2, (w + left − j) / 2] · w[i, j], where these are whole."""
    row = tl.program_id(0).to(tl.int64)
    n = row // H
    h = row % H
    wi = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros([ACROSS, CHANNELS], tl.float32)
    for i in tl.static_range(TAPS):
        up = h + top - i
        if (up % 2 == 0) & (up >= 0) & (up < 2 * Ho):
            for j in tl.static_range(TAPS):
                across = wi + left - j
                there = ((across % 2 == 0) & (across >= 0) & (across < 2 * Wo))[:, None] & (c < C)[None, :]
                at = ((n * Ho + up // 2) * Wo + across[:, None] // 2) * C + c[None, :]
                value = tl.load(dy + at, mask=there, other=0.0).to(tl.float32)
                total += value * tl.load(w + (i * TAPS + j) * C + c, mask=c < C, other=0.0)[None, :]
    there = (wi < W)[:, None] & (c < C)[None, :]
    tl.store(dx + (row * W + wi[:, None]) * C + c[None, :], total.to(dx.dtype.element_ty), mask=there)


class _Halve(torch.autograd.Function):
    """A depthwise convolution with stride 2, padded as TensorFlow pads ("same"); x (N, C, H, W) channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        N, C, H, W = x.shape
        taps = weight.shape[-1]
        Ho = -(-H // 2)
        Wo = -(-W // 2)
        top, left = (max(0, 2 * (out - 1) + taps - size) // 2 for out, size in ((Ho, H), (Wo, W)))
        by_tap = weight.detach().float().view(C, -1).t().contiguous()  # (taps², C)
        y = torch.empty((N, C, Ho, Wo), device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        grid = (N * Ho, triton.cdiv(Wo, ACROSS), triton.cdiv(C, CHANNELS))
        _halve[grid](x, by_tap, y, H, W, C, Ho, Wo, top, left, taps, ACROSS, CHANNELS)
        ctx.save_for_backward(x, weight, by_tap)
        ctx.sizes = top, left
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight, by_tap = ctx.saved_tensors
        top, left = ctx.sizes
        N, C, H, W = x.shape
        taps = weight.shape[-1]
        dy, (Ho, Wo) = dy.contiguous(memory_format=torch.channels_last), dy.shape[2:]
        dx = torch.empty_like(x)
        grid = (N * H, triton.cdiv(W, ACROSS), triton.cdiv(C, CHANNELS))
        _halve_back[grid](dy, by_tap, dx, H, W, C, Ho, Wo, top, left, taps, ACROSS, CHANNELS)
        # cuDNN pads both sides alike: with two more an output comes first, and at times one last, of gradient zero.
        more = [(size + 2 * side + 4 - taps) // 2 - out for size, side, out in ((W, left, Wo), (H, top, Ho))]
        later = nn.functional.pad(dy, (1, more[0], 1, more[1])).contiguous(memory_format=torch.channels_last)
        padding = [top + 2, left + 2]
        kernel = weight.to(x.dtype)
        mask = [False, True, False]  # of the weight only
        _, dw, _ = torch.ops.aten.convolution_backward(
            later, x, kernel, None, [2, 2], padding, [1, 1], False, [0, 0], C, mask
        )
        return dx, dw.to(weight.dtype)


# ---------------------------------------------------------------------------------------------------- layers


class TritonNormAct(BatchNormAct2d):
    """timm's layer; in training on channels-last activations by these kernels, else as it is."""

    def forward(self, x: Tensor) -> Tensor:
        fits = _fits(self, x) and isinstance(self.drop, nn.Identity) and type(self.act) in ACTS
        if not fits or self.running_mean is None or self.running_var is None or self.momentum is None:
            return super().forward(x)
        y, mean, variance = _NormAct.apply(x, self.weight, self.bias, self.running_mean, self.eps, ACTS[type(self.act)])
        with torch.no_grad():
            count = x.numel() // x.shape[1]
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / max(1, count - 1)), self.momentum)
        return y


class TritonHalving(Conv2dSame):
    """timm's depthwise convolution of stride 2; in training on channels-last activations by these kernels."""

    def forward(self, x: Tensor) -> Tensor:
        return _Halve.apply(x, self.weight) if _fits(self, x) else super().forward(x)


def _fits(layer: nn.Module, x: Tensor) -> bool:
    return layer.training and x.is_contiguous(memory_format=torch.channels_last)


def try_kernels(device: torch.device) -> None:
    """Run a small layer both ways: where kernels cannot be compiled or started, this raises what a step would."""
    x = torch.zeros(1, 4, 2, 2, device=device).to(memory_format=torch.channels_last).requires_grad_()
    layer = BatchNormAct2d(4).to(device).train()
    use_triton_layers(layer)
    layer(x).sum().backward()


def use_triton_layers(network: nn.Module) -> int:
    """Let these kernels compute what they can of a timm network in training; returns how many layers that are."""
    changed = 0
    for module in network.modules():
        if type(module) is BatchNormAct2d and module.affine:
            module.__class__ = TritonNormAct
        elif _halves(module):
            module.__class__ = TritonHalving
        else:
            continue
        changed += 1
    return changed


def _halves(module: nn.Module) -> bool:
    """Whether it is a depthwise convolution of stride 2 without a bias, padded as TensorFlow does."""
    if type(module) is not Conv2dSame or module.bias is not None:
        return False
    depthwise = module.groups == module.in_channels == module.out_channels
    plain = module.stride == (2, 2) and module.dilation == (1, 1)
    return depthwise and plain and module.kernel_size in ((3, 3), (5, 5))

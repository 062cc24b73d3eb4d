"""Switches of torch for training: train or eval mode, TF32, cuDNN's attention and search, Triton kernels."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import nn

from ballcast.core.errors import BallcastWarning, first_line


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Set train or eval mode within the block, and restore it after."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


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


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Within the block, attention is not computed by cuDNN, which was not tried in CUDA graphs with a mask."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def search_convolutions(device: torch.device) -> Iterator[None]:
    """On a GPU, within the block: cuDNN tries its algorithms on each new shape, and keeps the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def use_triton(network: nn.Module) -> None:
    """Let our Triton kernels compute what they can of a timm network in training, where Triton is installed and works.

    It needs a C compiler. Where a first kernel fails, warn and train without.
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

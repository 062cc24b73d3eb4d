"""The device that torch computes on."""

from collections.abc import Sequence

import torch

from ballcast.core.errors import InputError


def choose_device(wanted: str, kinds: Sequence[str]) -> torch.device:
    """Choose the device that `--device` names; an InputError if it cannot be used or is not there.

    Args:
        wanted: "auto", "cpu", "cuda" (NVIDIA's or AMD's GPU) or "mps" (Apple's).
        kinds: those that can be used; "auto" is the first of them that is there.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        wanted = next(kind for kind in kinds if there[kind])
    if wanted not in kinds:
        raise InputError(f"--device {wanted}: cannot be used here; choose from auto, {', '.join(kinds)}")
    if not there[wanted]:
        raise InputError(f"--device {wanted}: torch sees no such GPU here; use --device auto or cpu")
    return torch.device(wanted)

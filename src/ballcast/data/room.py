"""Where the machine has room for much data: on the GPU, in memory, or only on disk."""

import os
from typing import Literal

import torch

from ballcast.core.errors import InputError

Where = Literal["gpu", "memory", "disk"]


def place(nbytes: int, device: torch.device, wanted: Literal["auto", "gpu", "memory", "disk"] = "auto") -> Where:
    """Where so many bytes go: as `wanted`, or to the nearest place where they take up no more than half of what is
    free.
    """
    if wanted == "gpu" and device.type != "cuda":
        raise InputError("data.device=gpu needs a GPU, and torch sees none; use data.device=auto")
    if wanted != "auto":
        return wanted
    if device.type == "cuda" and nbytes < torch.cuda.mem_get_info(device)[0] / 2:
        return "gpu"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return "memory" if nbytes < free / 2 else "disk"

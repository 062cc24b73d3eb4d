"""The machine a benchmark runs on, and the default frames."""

import argparse
from dataclasses import dataclass

import torch

SIZES = {"720p": (720, 1280), "224p": (224, 398)}  # H, W


@dataclass(frozen=True)
class Machine:
    """The device, its `name`, and H, W of the frames."""

    on_gpu: bool
    name: str
    size: tuple[int, int]


def add_options(parser: argparse.ArgumentParser, *, threads: int) -> None:
    """--device, --size, --threads (by default `threads`)."""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, help="default: 720p on a GPU, 224p on a CPU")
    parser.add_argument("--threads", type=int, default=threads, help="torch's threads on a CPU")


def settle(args: argparse.Namespace) -> Machine:
    """What the options chose; torch's threads are set."""
    on_gpu = args.device.startswith("cuda")
    if not on_gpu:
        torch.set_num_threads(args.threads)
    name = torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} thread(s)"
    return Machine(on_gpu, name, SIZES[args.size or ("720p" if on_gpu else "224p")])

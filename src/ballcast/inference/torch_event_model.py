"""The event transformer, of feeds and of spots, in torch: loaded from its folder, run, and written as an ONNX graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ballcast.model.event_transformer import EventTransformer, decode_slots, load_event_transformer
from ballcast.model.spot_transformer import SpotOutputs, load_spot_transformer

if TYPE_CHECKING:
    from ballcast.inference.event_model import Run
    from ballcast.inference.spot_model import Run as SpotRun


class Outputs(nn.Module):
    """The network and what is read from its slots: the graph that is exported."""

    def __init__(self, network: EventTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, codes: Tensor, values: Tensor, available: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return decode_slots(self.network(codes, values, available))


def load_torch(folder: Path, device: str) -> "Run":
    """A function that runs the network of a folder on arrays, on a device."""
    model = Outputs(load_event_transformer(folder)).to(device)

    @torch.inference_mode()
    def run(codes: Any, values: Any, available: Any) -> tuple[Any, Any, Any]:
        given = (torch.from_numpy(array).to(device) for array in (codes, values, available))
        intensity, chance, zones = (output.cpu().numpy() for output in model(*given))
        return intensity, chance, zones

    return run


def load_torch_spots(folder: Path, device: str) -> "SpotRun":
    """A function that runs the spot transformer of a folder on arrays, on a device."""
    model = SpotOutputs(load_spot_transformer(folder)).to(device)

    @torch.inference_mode()
    def run(codes: Any, values: Any, details: Any) -> tuple[Any, Any]:
        given = (torch.from_numpy(array).to(device) for array in (codes, values, details))
        intensity, chance = (output.cpu().numpy() for output in model(*given))
        return intensity, chance

    return run

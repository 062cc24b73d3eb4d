"""The event transformer in torch: loaded from its folder, run, and written as an ONNX graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ballcast.core.config import from_dict
from ballcast.core.errors import InputError, first_line
from ballcast.model.event_transformer import EventTransformer, EventTransformerConfig, decode_slots

if TYPE_CHECKING:
    from ballcast.inference.event_model import Run


class Outputs(nn.Module):
    """The network and what is read from its slots: the graph that is exported."""

    def __init__(self, network: EventTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, codes: Tensor, values: Tensor, available: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return decode_slots(self.network(codes, values, available))


def load_network(folder: Path, network: Mapping[str, Any]) -> EventTransformer:
    """The network of a folder, in eval mode on the CPU; weights in half precision become single."""
    model = EventTransformer(from_dict(EventTransformerConfig, dict(network), "network"))
    path = folder / "model.safetensors"
    try:
        model.load_state_dict({name: tensor.float() for name, tensor in load_file(path).items()})
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path}: does not hold the model of config.json ({first_line(error)})") from None
    return model.eval()


def load_torch(folder: Path, network: Mapping[str, Any], device: str) -> "Run":
    """A function that runs the network on arrays, on a device."""
    model = Outputs(load_network(folder, network)).to(device)

    @torch.inference_mode()
    def run(codes: Any, values: Any, available: Any) -> tuple[Any, Any, Any]:
        given = (torch.from_numpy(array).to(device) for array in (codes, values, available))
        intensity, chance, zones = (output.cpu().numpy() for output in model(*given))
        return intensity, chance, zones

    return run

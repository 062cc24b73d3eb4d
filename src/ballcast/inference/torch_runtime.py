"""The torch runtime: the trained networks, on the CPU, or on a GPU as CUDA graphs."""

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.backbone_config import trained_size
from ballcast.features.backbone import Backbone
from ballcast.features.stream_encoder import Floats
from ballcast.features.torch_stream_encoder import TorchStackEncoder, record
from ballcast.inference.store_predictor import check_backbone
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotArrays
from ballcast.model.slots import Slots

if TYPE_CHECKING:
    from ballcast.inference.torch_batch import TorchBatch


class TorchModel:
    """A `WindowModel`: a trained network on the CPU or a GPU.

    Args:
        model: moved to `device` and put in eval mode.
        device: where to compute.
    """

    def __init__(self, model: Anticipator, device: torch.device | str = "cpu") -> None:
        self.network, self._device = model.to(device).eval(), torch.device(device)
        self.config, self.emit, self.metadata = model.config, model.emit, model.metadata
        self.pos_weight, self.calibration = model.pos_weight, model.calibration

    @classmethod
    def load(cls, source: Path | str, device: torch.device | str) -> "TorchModel":
        """Load the model in a folder, or of a hub id."""
        return cls(Anticipator.from_pretrained(source), device)

    @torch.inference_mode()
    def slots(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        """See `WindowModel`."""
        given = torch.from_numpy(features).to(self._device)
        return self.network(given, None if present is None else torch.from_numpy(present).to(self._device)).arrays()


class GraphedSteps:
    """The two steps of a model for one stream, recorded as CUDA graphs without compiling, which would take a minute.

    The result of a call is overwritten by the next call of the same method.

    Args:
        model: on a GPU, in eval mode.
    """

    def __init__(self, model: Anticipator) -> None:
        config, device = model.config, next(model.parameters()).device
        lookback = model.network.lookback
        self._features = torch.zeros(config.clips, config.width, device=device)
        self._present = torch.ones(1, lookback, dtype=torch.bool, device=device)
        with torch.inference_mode():
            self._encode, self._encoded = record(lambda: model.encode_window(self._features))
            self._tokens = torch.zeros(1, lookback, *self._encoded.shape, device=device, dtype=self._encoded.dtype)
            self._anticipate, self._slots = record(lambda: model.anticipate(self._tokens, self._present))

    def encode_window(self, features: Tensor) -> Tensor:
        """Features (N, D) → tokens (N, d)."""
        self._features.copy_(features)
        self._encode()
        return self._encoded

    def anticipate(self, tokens: Tensor, present: Tensor) -> Slots:
        """Tokens (1, W, N, d), and which windows are present (1, W) → slots."""
        self._tokens.copy_(tokens)
        self._present.copy_(present)
        self._anticipate()
        return self._slots


class TorchRuntime(TorchStackEncoder):
    """A `Runtime` for one stream; several can share the networks (`another`).

    Args:
        model: moved to `device` and put in eval mode.
        backbone: the one the model was trained on (`check_backbone`).
        device: where to compute; by default the backbone's device.
        name: of the model in results.
    """

    def __init__(
        self, model: Anticipator, backbone: Backbone, *, device: torch.device | str | None = None, name: str = ""
    ) -> None:
        super().__init__(backbone, device=device)
        self.model = model.to(self.encoder.device).eval()
        self.clips, self.lookback = model.config.clips, model.network.lookback
        self.emit, self.pos_weight = model.emit, model.pos_weight
        # The model's metadata first: the frame size of its store counts, not that of the backbone's training.
        self.picture_size = trained_size(model.metadata) or trained_size(backbone.metadata)
        self.about: dict[str, Any] = {"model": name, "backbone": {"name": backbone.name, "hash": backbone.hash}}
        self._steps: Anticipator | GraphedSteps | None = None  # built on the thread that uses it

    @classmethod
    def load(cls, model: Path | str, backbone: Path | str, *, device: torch.device | str) -> "TorchRuntime":
        """Load a model and a backbone (folders or hub ids); an InputError if they do not belong together."""
        anticipator, network = Anticipator.from_pretrained(model), Backbone.load(backbone)
        check_backbone(anticipator, network, model, backbone)
        return cls(anticipator, network.to(device), device=device, name=str(model))

    def another(self) -> "TorchRuntime":
        """A runtime for another stream, sharing the networks."""
        fresh = copy.copy(self)
        fresh._steps = None
        return fresh

    @torch.inference_mode()
    def encode_window(self, features: Floats) -> Floats:
        """See `Runtime`."""
        tokens = self._model_steps.encode_window(torch.from_numpy(features).to(self.encoder.device))
        return tokens.cpu().numpy().copy()  # a graph's next replay overwrites it

    @torch.inference_mode()
    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """See `Runtime`."""
        given = (torch.from_numpy(array)[None].to(self.encoder.device) for array in (tokens, present))
        return self._model_steps.anticipate(*given).arrays()

    def batched(self, streams: int) -> "TorchBatch":
        """See `Runtime`."""
        from ballcast.inference.torch_batch import TorchBatch

        return TorchBatch(self, streams=streams)

    @property
    def _model_steps(self) -> Anticipator | GraphedSteps:
        """The model; on a GPU its recorded graphs."""
        if self._steps is None:
            self._steps = GraphedSteps(self.model) if self.encoder.device.type == "cuda" else self.model
        return self._steps

"""A model's work at fixed shapes, recorded as CUDA graphs: for the lowest latency on a GPU."""

import torch
from torch import Tensor

from ballcast.features.graph import record
from ballcast.model.anticipator import Anticipator
from ballcast.model.slots import Slots


class Graphed:
    """A model's forward pass at one batch size, compiled and recorded.

    Args:
        model: on a GPU, in eval mode; features (batch, W, N, D) and present (batch, W) in, `Slots` out.
        batch: samples a call.
        compiled: fuse kernels first, which takes about a minute.
    """

    def __init__(self, model: Anticipator, batch: int = 1, *, compiled: bool = True) -> None:
        config, device = model.config, next(model.parameters()).device
        self.features = torch.zeros(batch, config.windows, config.clips, config.width, device=device)
        self.present = torch.ones(batch, config.windows, dtype=torch.bool, device=device)
        forward = torch.compile(model, dynamic=False) if compiled else model
        with torch.inference_mode():
            self._replay, self._slots = record(lambda: forward(self.features, self.present))

    def __call__(self, features: Tensor, present: Tensor | None = None) -> Slots:
        """The slots; the next call overwrites them."""
        self.features.copy_(features, non_blocking=True)
        self.present.fill_(True) if present is None else self.present.copy_(present, non_blocking=True)
        self._replay()
        return self._slots


class GraphedSteps:
    """The two steps of a model on one stream, window by window, recorded as they are: no minute of compiling.

    model: on a GPU, in eval mode. What a call gives is overwritten by the next of its kind.
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
        """Tokens (1, W, N, d) and which windows there are, (1, W) → slots."""
        self._tokens.copy_(tokens)
        self._present.copy_(present)
        self._anticipate()
        return self._slots

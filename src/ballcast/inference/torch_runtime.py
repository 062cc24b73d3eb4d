"""The torch runtime: the trained networks, on the CPU, or on a GPU as CUDA graphs."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ballcast.core.backbone_config import BackboneConfig, trained_size
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import CPU_BATCH, BatchEncoder
from ballcast.features.cuda_graph import record
from ballcast.inference.expected_precision import ExpectedPrecision
from ballcast.inference.runtime import Floats
from ballcast.inference.store_predictor import check_backbone
from ballcast.inference.torch_stacks import SIZES, Buffer, StackBatch, TorchStream
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotArrays


class TorchRuntime:
    """A `Runtime` of one thread, but for `TorchStream.fill`; torch shares a CPU's cores.

    On a GPU the steps of streams are CUDA graphs, recorded without compiling for a single stream.

    Args:
        model: moved to `device` and put in eval mode.
        backbone: the one the model was trained on (`check_backbone`); None: it reads features only.
        device: where to compute; by default where the backbone lies, or else the model.
        name: of the model in results.
    """

    parallel = 1
    by_cores = False

    def __init__(
        self,
        model: Anticipator,
        backbone: Backbone | None = None,
        *,
        device: torch.device | str | None = None,
        name: str = "",
    ) -> None:
        if device is None:
            device = next((backbone or model).parameters()).device
        self._device = torch.device(device)
        self._graphed = self._compiled = self._device.type == "cuda"
        self.device = str(device)
        self.name = name
        self.network = model.to(self._device).eval()
        self.config = model.config
        self.emit = model.emit
        self.metadata = model.metadata
        self.pos_weight = model.pos_weight
        self.score_mapping = model.score_mapping
        self.lookback = model.network.lookback
        self.expected_precision: ExpectedPrecision | None = None
        self.picture_size = trained_size(model.metadata)
        self.about: dict[str, Any] = {"model": name}
        self._encoder: BatchEncoder | None = None
        if backbone is not None:
            self._encoder = BatchEncoder(backbone, device=self._device, compiled=False)
            # The model's metadata first: the frame size of its store counts, not that of the backbone's training.
            self.picture_size = self.picture_size or trained_size(backbone.metadata)
            self.about["backbone"] = {"name": backbone.name, "hash": backbone.hash}
        self._set_streams(1)

    def _set_streams(self, streams: int) -> None:
        self.streams = streams
        self.largest = min(streams, SIZES[-1] if self._graphed else CPU_BATCH)
        self._stacks: dict[tuple[int, int], StackBatch] = {}  # by the size of the frames
        self._graphs: dict[int, _ModelGraphs] = {}  # by the size of the batch

    @classmethod
    def load(
        cls, model: Path | str, backbone: Path | str | None = None, *, device: torch.device | str
    ) -> "TorchRuntime":
        """Load a model and a backbone (folders or hub ids); an InputError if they do not belong together."""
        anticipator = Anticipator.from_pretrained(model)
        if backbone is None:
            return cls(anticipator, device=device, name=str(model))
        network = Backbone.load(backbone)
        check_backbone(anticipator, network, model, backbone)
        return cls(anticipator, network.to(device), device=device, name=str(model))

    @property
    def encoder(self) -> BatchEncoder:
        """The backbone; an InputError if there is none."""
        if self._encoder is None:
            raise InputError(f"{self.name}: needs the backbone it was trained on to read videos; give its folder")
        return self._encoder

    @property
    def backbone(self) -> BackboneConfig:
        return self.encoder.config

    def for_streams(self, streams: int) -> Self:
        other = copy.copy(self)
        other._set_streams(streams)
        return other

    def prepare(self) -> None:
        """Record the graphs that do not depend on the size of frames."""
        for count in SIZES if self._graphed else ():
            if count <= self.largest:
                self._model_graphs(count)

    def open_stream(self, size: tuple[int, int]) -> TorchStream:
        if size not in self._stacks:
            self._stacks = {key: batch for key, batch in self._stacks.items() if batch.used}  # memory of other sizes
            self._stacks[size] = StackBatch(
                self.encoder, size, streams=self.streams, graphed=self._graphed, compiled=self._compiled
            )
        return self._stacks[size].open()

    def close_stream(self, stream: TorchStream) -> None:
        stream.batch.close(stream)

    def encode_stacks(self, streams: Sequence[TorchStream]) -> Floats:
        return streams[0].batch.run(streams)

    @torch.inference_mode()
    def encode_windows(self, features: Floats) -> Floats:
        if not self._graphed:
            return self.network.encode_window(self._load(features)).cpu().numpy()
        graphs = self._model_graphs(len(features))
        tokens = graphs.encode(_filled(features, graphs.count))[: len(features)]
        return tokens.cpu().numpy().copy()  # the next replay overwrites it

    @torch.inference_mode()
    def predict(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        if not self._graphed:
            return self.network.anticipate(self._load(tokens), self._load(present)).arrays()
        graphs = self._model_graphs(len(tokens))
        slots = graphs.anticipate(_filled(tokens, graphs.count), _filled(present, graphs.count))
        return slots[: len(tokens)]

    @torch.inference_mode()
    def predict_windows(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        return self.network(self._load(features), None if present is None else self._load(present)).arrays()

    def _load(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _model_graphs(self, count: int) -> "_ModelGraphs":
        """The graphs of the model for batches of at least `count`."""
        size = next(size for size in (*SIZES, count) if size >= count)
        if size not in self._graphs:
            self._graphs[size] = _ModelGraphs(self.network, size)
        return self._graphs[size]


class _ModelGraphs:
    """The two steps of a model for a batch of `count`, recorded; a replay overwrites the last result of its step."""

    @torch.inference_mode()
    def __init__(self, model: Anticipator, count: int) -> None:
        self.count = count
        config = model.config
        lookback = model.network.lookback
        device = next(model.parameters()).device
        self._features = Buffer((count, config.clips, config.width), torch.float32, device)
        self._present = Buffer((count, lookback), torch.bool, device)
        self._present.fill(np.ones((count, lookback), np.bool_))
        self._encode, self._encoded = record(lambda: model.encode_window(self._features.tensor))
        self._tokens = Buffer((count, lookback, *self._encoded.shape[1:]), self._encoded.dtype, device)
        self._anticipate, self._slots = record(lambda: model.anticipate(self._tokens.tensor, self._present.tensor))

    def encode(self, features: Floats) -> Tensor:
        """(count, N, D) → tokens (count, N, d)."""
        self._features.fill(features)
        self._encode()
        return self._encoded

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """(count, W, N, d), (count, W) → slots."""
        self._tokens.fill(tokens)
        self._present.fill(present)
        self._anticipate()
        return self._slots.arrays()


def _filled(array: NDArray[Any], count: int) -> NDArray[Any]:
    """Rows of an array filled up to `count` with its last row."""
    return array if len(array) == count else np.concatenate([array, np.repeat(array[-1:], count - len(array), 0)])

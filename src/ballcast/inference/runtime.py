"""The interface between the predictors and what runs the networks: torch (`torch_runtime.py`) or ONNX
(`onnx_runtime.py`). Arrays are NumPy's.

Frames go through three networks: stacks of frames → features, windows of features → tokens, tokens of several windows →
slots. Every call takes a batch; one stream is a batch of one.

b streams in a call, B samples, W windows, N snippets per window, D features per snippet, d the token width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.core.backbone_config import BackboneConfig
from ballcast.inference.expected_precision import ExpectedPrecision
from ballcast.model.postprocess import SlotArrays
from ballcast.model.score_mapping import ScoreMapping

Floats = NDArray[np.float32]
Frames = NDArray[np.uint8] | Sequence[NDArray[np.uint8]]  # an array, or what `np.stack` makes it from


class TrainedModel(Protocol):
    """What is known of a trained model: an `Anticipator`, or a `Runtime`.

    - `config`: the network and its sizes. `emit`: how its slots become predictions.
    - `metadata`: at least "backbone" ({"name": …, "hash": …}), if known.
    - `pos_weight`: of the loss it was trained with. `score_mapping`: the score mapping of `ballcast tune`.
    """

    @property
    def config(self) -> ModelConfig: ...
    @property
    def emit(self) -> EmitConfig: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def pos_weight(self) -> float: ...
    @property
    def score_mapping(self) -> ScoreMapping | None: ...


class Stream(Protocol):
    """A stream that is open in a `Runtime`, which keeps the feature maps of its latest stacks."""

    def fill(self, frames: Frames) -> None:
        """Copy the frames of its next stack, (stack, H, W), or I420 (stack, 3H/2, W); from the stream's own thread.

        With a temporal shift, those of a window, (N, stack, H, W).
        """
        ...


class Runtime(TrainedModel, Protocol):
    """A model, and the backbone it was trained on if it reads videos, on some device.

    Used on one thread at a time unless `parallel` says more; `for_streams` gives others that share the networks.

    - `name`: of the model, in results and messages. `device`: "onnx", or torch's.
    - `lookback`: number of latest windows the model reads, at most its config's.
    - `expected_precision`: how often its predictions come true; None: not measured, confidences are its own scores.
    - `picture_size`: (H, W) of the frames it was trained on; None: unknown, frames are not resized.
    - `about`: description of both networks for results: {"model": …, "backbone": {"name": …, "hash": …}}.
    - `streams`: that may be open at once. `largest`: b of a call, at most.
    - `parallel`: calls at a time, each on its own thread. `by_cores`: the cores are the limit, so their time is what
      counts; else the time of the one thread that calls.
    """

    name: str
    device: str
    lookback: int
    expected_precision: ExpectedPrecision | None
    picture_size: tuple[int, int] | None
    about: dict[str, Any]
    streams: int
    largest: int
    parallel: int
    by_cores: bool

    @property
    def backbone(self) -> BackboneConfig:
        """The backbone's sizes; an InputError if there is none, since the model reads no videos."""
        ...

    def for_streams(self, streams: int) -> Self:
        """The same networks for up to `streams` other streams."""
        ...

    def prepare(self) -> None:
        """Do what takes time before the first stream is opened."""
        ...

    def open_stream(self, size: tuple[int, int]) -> Any:
        """Open a stream (`Stream`) of frames of this shape, (H, W) or of I420 (3H/2, W)."""
        ...

    def close_stream(self, stream: Any) -> None:
        """Give its place to another stream."""
        ...

    def encode_stacks(self, streams: Sequence[Any]) -> Floats:
        """Encode the stacks that these streams, all of one frame size, were filled with.

        Returns:
            Features (b, D) of the snippets that end with them, which mean nothing before a stream has the stacks of a
            snippet. With a temporal shift, (b, N, D) of the windows.
        """
        ...

    def encode_windows(self, features: Floats) -> Floats:
        """Features (B, N, D) of windows → their tokens (B, N, d), an array the caller may keep."""
        ...

    def predict(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Tokens (B, `lookback`, N, d), and which windows are present (B, `lookback`), always the last → slots."""
        ...

    def predict_windows(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        """Features (B, W, N, D) of all windows, and which are present (B, W), by default all → slots.

        For many samples at once, as those of a feature store.
        """
        ...

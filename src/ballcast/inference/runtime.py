"""The interfaces between the predictors and torch (`torch_runtime.py`) or ONNX (`onnx_runtime.py`), in numpy.

W windows, N snippets per window, D features per snippet, d the token width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.features.stream_encoder import Floats, Pictures, StackEncoder
from ballcast.model.postprocess import SlotArrays
from ballcast.model.score_mapping import ScoreMapping


class TrainedModel(Protocol):
    """What is known of a trained model: an `Anticipator`, or an export.

    - `config`: the network and its sizes. `emit`: how its slots become predictions.
    - `metadata`: at least "backbone" ({"name": …, "hash": …}), if known.
    - `pos_weight`: of the loss it was trained with. `calibration`: the score mapping of `ballcast tune`.
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
    def calibration(self) -> ScoreMapping | None: ...


class WindowModel(TrainedModel, Protocol):
    """A trained model that runs on windows of features: those of a store, or of an event feed."""

    def slots(self, features: NDArray[Any], present: NDArray[np.bool_] | None = None) -> SlotArrays:
        """Features (B, W, N, D), and which windows are present (B, W), all by default → slots of B samples."""
        ...


class Runtime(StackEncoder, Protocol):
    """A backbone (`StackEncoder`) and the model trained on its features.

    - `clips`: N. `lookback`: number of latest windows the model reads, W.
    - `emit`: how the model's slots become predictions. `pos_weight`: of the loss it was trained with.
    - `picture_size`: (H, W) of the frames it was trained on; None: unknown, frames are not resized.
    - `about`: description of both for results: {"model": …, "backbone": {"name": …, "hash": …}}.
    """

    clips: int
    lookback: int
    emit: EmitConfig
    pos_weight: float
    picture_size: tuple[int, int] | None
    about: dict[str, Any]

    def encode_window(self, features: Floats) -> Floats:
        """Features (N, D) of a window → its tokens (N, d), an array the caller may keep."""
        ...

    def anticipate(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Tokens (W, N, d), and which windows are present (W,), always the last → the slots of this one sample."""
        ...

    def batched(self, streams: int) -> "BatchRuntime":
        """The same networks for up to so many streams, whose steps are computed together."""
        ...


class StreamState(Protocol):
    """One stream's place in a `BatchRuntime`."""

    def fill(self, pictures: Pictures) -> None:
        """Give the next stack's frames, as to a `Step`, on the thread of the stream; copied."""
        ...


class BatchRuntime(Protocol):
    """The steps of a `Runtime` for a batch of b streams in one call.

    - `runtime`: whose networks it runs. `largest`: b of a call, at most. `streams`: places, at most.
    - `parallel`: calls at a time, at most, each on a thread of its own. `by_cores`: the cores are the limit, so their
      time is what counts; else it is the time of the one thread that calls.
    """

    runtime: Any
    largest: int
    streams: int
    parallel: int
    by_cores: bool

    def prepare(self) -> None:
        """Do what takes time before the first stream comes."""
        ...

    def open(self, size: tuple[int, int]) -> Any:
        """A place (`StreamState`) for a stream of frames of this shape; streams of one batch have the same shape."""
        ...

    def close(self, state: Any) -> None:
        """Take a place back."""
        ...

    def encode_stacks(self, states: Sequence[Any]) -> Floats:
        """The stacks that were given to these places → features (b, D), as of a `Step`; (b, N, D) if shifted."""
        ...

    def encode_windows(self, features: Floats) -> Floats:
        """Features (b, N, D) → tokens (b, N, d)."""
        ...

    def anticipate_batch(self, tokens: Floats, present: NDArray[np.bool_]) -> SlotArrays:
        """Tokens (b, W, N, d), and which windows are present (b, W) → slots of b samples."""
        ...

"""The interfaces between the predictors and torch (`torch_runtime.py`) or ONNX (`onnx_runtime.py`), in numpy.

W windows, N snippets per window, D features per snippet, d the token width.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ballcast.core.anticipator_config import EmitConfig, ModelConfig
from ballcast.features.stream_encoder import Floats, StackEncoder
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

"""The interface between the rolling predictor and torch (`torch_runtime.py`) or ONNX (`onnx_runtime.py`), in numpy.

W windows, N snippets per window, D features per snippet, d the token width.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ballcast.core.anticipator_config import EmitConfig
from ballcast.features.stream_encoder import Floats, StackEncoder
from ballcast.model.postprocess import SlotArrays


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

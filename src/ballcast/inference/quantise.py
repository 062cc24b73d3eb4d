"""INT8 for the CPU: the 2D network's convolutions in whole numbers, by ONNX Runtime's own quantisation.

Only the stacks' part, six sevenths of the arithmetic: the rest is small, and an error there is nearer to the answer.
Weights have a scale a channel; activations one a tensor, from what passes through on real pictures.
"""

import logging
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.errors import MissingExtra

QUANTISED = ("Conv", "Sigmoid", "Mul", "Add")


def quantise(graph: bytes, pictures: Iterable[NDArray[np.uint8]]) -> bytes:
    """The stacks' part in INT8, its ranges taken from real `pictures`, each (1, stack, H, W) and padded."""
    try:
        import onnxruntime
        from onnxruntime import quantization
    except ImportError:
        raise MissingExtra("ONNX Runtime", "onnx") from None

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._given: Iterator[NDArray[np.uint8]] = iter(pictures)

        def get_next(self) -> dict[str, Any] | None:
            given = next(self._given, None)
            return None if given is None else {"pictures": given}

    with tempfile.TemporaryDirectory() as work:
        plain, done = Path(work) / "plain.onnx", Path(work) / "int8.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC  # norms and pads folded
        options.optimized_model_filepath, options.log_severity_level = str(plain), 3
        onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        logging.disable(logging.WARNING)  # advice to fold norms first, which has been done above
        try:
            quantization.quantize_static(
                plain,
                done,
                Reader(),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=list(QUANTISED),
                per_channel=True,
                reduce_range=True,  # or sums overflow on processors without VNNI, which would then answer otherwise
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
            )
        finally:
            logging.disable(logging.NOTSET)
        return done.read_bytes()

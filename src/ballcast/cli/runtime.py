"""Which runtime `predict`, `live` and `serve` compute with, and what it needs; `--runtime onnx` never imports torch."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from ballcast.inference.runtime import Runtime

Kind = Annotated[
    Literal["torch", "onnx"],
    typer.Option("--runtime", help="onnx: --model is a folder of `ballcast export`; quick to start, needs no torch."),
]
PictureSize = Annotated[
    str | None,
    typer.Option(
        "--size",
        "--pictures",
        metavar="trained|own|WxH",
        help="The size pictures are brought to, proportions kept: that of training, their own, or such as 1280x720.",
        show_default="trained",
    ),
]


def open_runtime(
    kind: str, model: str | None, backbone: str | None, device: str, command: str, size: str | None = None
) -> "Callable[[], Runtime]":
    """What gives a runtime for one stream after another, their networks shared. `command` names who asks.

    `size`: see `choose_size`.
    """
    from ballcast.inference.export_folder import is_export
    from ballcast.video.fit import choose_size

    if kind == "torch":
        if model is not None and is_export(model):
            raise InputError(f"{model}: is what `ballcast export` wrote; add --runtime onnx")
        from ballcast.core.embedded import choose_models
        from ballcast.inference.torch_runtime import TorchRuntime
        from ballcast.training.distributed import start

        first = TorchRuntime.load(*choose_models(model, backbone, command), device=start(device)[1])
        first.picture_size = choose_size(size, first.picture_size, str(first.about["model"]))
        return first.another
    if model is None:
        raise InputError(f"{command} --runtime onnx needs --model with a folder that `ballcast export` wrote")
    if backbone is not None:
        raise InputError("--backbone goes with --runtime torch: what `ballcast export` wrote holds its own")
    if device == "cuda":
        raise InputError("--runtime onnx computes on the CPU; leave --device out, or take --runtime torch")
    from ballcast.inference.onnx_runtime import OnnxRuntime

    opened = OnnxRuntime.open(model)
    opened.picture_size = choose_size(size, opened.picture_size, model)
    return lambda: opened

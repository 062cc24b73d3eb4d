"""Options and checks shared by `predict`, `live`, `serve` and `export`: the model, its runtime, how it emits."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from ballcast.core.anticipator_config import EmitConfig
    from ballcast.inference.runtime import Runtime

Model = Annotated[
    str | None, typer.Option("--model", help="A model's folder, or its id on the hub; embedded by default.")
]
ModelBackbone = Annotated[
    str | None, typer.Option("--backbone", help="The backbone the model was trained on, as in `extract`.")
]
Kind = Annotated[
    Literal["torch", "onnx"],
    typer.Option("--runtime", help="onnx: --model is a folder of `ballcast export`; starts quickly, needs no torch."),
]
PictureSize = Annotated[
    str | None,
    typer.Option(
        "--size",
        "--pictures",
        metavar="trained|own|WxH",
        help="Size to scale frames to, proportions kept: that of training, their own, or such as 1280x720.",
        show_default="trained",
    ),
]


def open_runtime(
    kind: str, model: str | None, backbone: str | None, device: str, command: str, size: str | None = None
) -> "Callable[[], Runtime]":
    """Open a model; returns a function that makes a runtime for each stream. All of them share one network.

    Args:
        kind: "torch" or "onnx".
        model: folder or hub id; for onnx, a folder written by `ballcast export`. None: the embedded model.
        backbone: folder or hub id; torch only.
        device: "auto", "cpu" or "cuda".
        command: the command's name, for error messages.
        size: size to scale frames to, see `choose_size`.
    """
    from ballcast.inference.export_config import is_export
    from ballcast.video.luma import choose_size

    if kind == "torch":
        if model is not None and is_export(model):
            raise InputError(f"{model}: is an export; add --runtime onnx")
        from ballcast.core.hub import choose_models
        from ballcast.inference.torch_runtime import TorchRuntime
        from ballcast.training.engine import start

        first = TorchRuntime.load(*choose_models(model, backbone, command), device=start(device)[1])
        first.picture_size = choose_size(size, first.picture_size, str(first.about["model"]))
        return first.another
    if model is None:
        raise InputError(f"{command} --runtime onnx needs --model with a folder written by `ballcast export`")
    if backbone is not None:
        raise InputError("--backbone goes with --runtime torch; an export holds its own backbone")
    if device == "cuda":
        raise InputError("--runtime onnx runs on the CPU; leave --device out, or use --runtime torch")
    from ballcast.inference.onnx_runtime import OnnxRuntime

    opened = OnnxRuntime.open(model)
    opened.picture_size = choose_size(size, opened.picture_size, model)
    return lambda: opened


def changed_emission(own: "EmitConfig", overrides: Sequence[str], *, shown: bool) -> "EmitConfig":
    """Apply the user's key=value changes to a model's emission; an InputError for one without effect.

    Args:
        own: the model's own settings.
        overrides: key=value.
        shown: for display along a video or a feed, where each slot is read separately (see `EmitConfig.shown`).
    """
    from ballcast.core.anticipator_config import EmitConfig
    from ballcast.core.config import from_dict, parse_overrides, to_dict

    tree = parse_overrides([text.removeprefix("emit.") for text in overrides])
    changed = from_dict(EmitConfig, {**to_dict(own), **tree}).of_loss(own.inflation)
    if shown and tree.get("mode") == "expected":
        raise InputError(
            "mode=expected is for submissions (--features); along a video or a feed use mode=slot or class"
        )
    made = changed.shown if shown else changed
    if idle := [f"{key}={tree[key]}" for key in made.unused if key in tree]:
        other = "mode=slot or mode=class" if made.mode == "expected" else "mode=expected (--features)"
        raise InputError(f"{idle[0]} changes nothing with mode={made.mode}; leave it out, or use {other}")
    return made

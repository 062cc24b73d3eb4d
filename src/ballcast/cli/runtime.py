from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from ballcast.core.anticipator_config import EmitConfig
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
    from ballcast.inference.export_config import is_export
    from ballcast.video.luma import choose_size

    if kind == "torch":
        if model is not None and is_export(model):
            raise InputError(f"{model}: is what `ballcast export` wrote; add --runtime onnx")
        from ballcast.core.hub import choose_models
        from ballcast.inference.torch_runtime import TorchRuntime
        from ballcast.training.engine import start

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


def changed_emission(own: "EmitConfig", overrides: Sequence[str], *, shown: bool) -> "EmitConfig":
    """The model's own way with the user's changes; an InputError for one that would change nothing.

    `shown`: to people, along a video or a feed, where slots speak one by one (see `EmitConfig.shown`).
    """
    from ballcast.core.anticipator_config import EmitConfig
    from ballcast.core.config import from_dict, parse_overrides, to_dict

    tree = parse_overrides([text.removeprefix("emit.") for text in overrides])
    asked = from_dict(EmitConfig, {**to_dict(own), **tree}).of_loss(own.inflation)
    if shown and tree.get("mode") == "expected":
        raise InputError(
            "mode=expected is for submissions (--features); along a video or a feed take mode=slot or class"
        )
    made = asked.shown if shown else asked
    if idle := [f"{key}={tree[key]}" for key in made.unused if key in tree]:
        other = "mode=slot or mode=class" if made.mode == "expected" else "mode=expected (--features)"
        raise InputError(f"{idle[0]} changes nothing with mode={made.mode}; leave it out, or take {other}")
    return made

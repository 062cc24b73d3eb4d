"""Options and checks shared by `predict`, `live`, `serve` and `export`: the model, its runtime, how it emits."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from ballcast.api import Model as LoadedModel
    from ballcast.core.anticipator_config import EmitConfig

Model = Annotated[
    str | None, typer.Option("--model", help="A model's folder, or its id on the hub; embedded by default.")
]
ModelBackbone = Annotated[
    str | None, typer.Option("--backbone", help="The backbone the model was trained on, as in `extract`.")
]
RuntimeKind = Literal["auto", "torch", "onnx"]
Kind = Annotated[
    RuntimeKind,
    typer.Option(
        "--runtime",
        help="auto: onnx without a GPU, where a trained model is exported once; else torch.",
    ),
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

AnyVideo = Annotated[
    bool, typer.Option("--any-video", help="Forecast also where no football pitch is seen, as in snow or old films.")
]

Followers = Annotated[
    int,
    typer.Option(
        "--followers",
        min=1,
        max=64,
        help="With --cluster: processes per machine, which share its GPU; more than 1 for more than about 30 streams.",
    ),
]


def check_followers(followers: int, cluster: str | None) -> None:
    """Refuse several followers without a cluster, which would start them."""
    if followers != 1 and cluster is None:
        raise InputError(
            f"--followers {followers}: needs --cluster; for this machine alone, `ray start --head` and --cluster auto"
        )


def load_model(
    kind: RuntimeKind,
    model: str | None,
    backbone: str | None,
    device: str,
    command: str,
    size: str | None = None,
) -> "LoadedModel":
    """Load a model that reads videos: `ballcast.load`, with the options of a command.

    Args:
        kind: the runtime.
        model, backbone: folders or hub ids; None: the embedded ones. An export has its own backbone.
        device: "auto", "cpu", "cuda" or "mps".
        command: the command's name, for error messages.
        size: size to scale frames to, see `choose_size`.
    """
    from ballcast.api import Model
    from ballcast.inference.loading import open_model

    return Model(
        *open_model(model, backbone, runtime=kind, device=device, size=size, command=command, exporter=_export_once)
    )


def _export_once(model: str, backbone: str) -> Path | None:
    """Export a trained model into the cache, and say so; or why it runs in torch."""
    from ballcast.cli.shell import new_console
    from ballcast.core.errors import BallcastWarning

    with new_console(stderr=True).status("exporting the model for this machine's CPU, once") as status:
        from ballcast.export.cached import export_once

        folder, why = export_once(model, backbone, log=status.update)
    note = f"{model}: was exported to {folder}, for ONNX Runtime; --runtime torch does without"
    if folder is None:
        note = f"{model}: runs in torch, since it cannot be exported: {why}"
    warnings.warn(note, BallcastWarning, stacklevel=2)
    return folder


def absolute(name: str | None) -> str | None:
    """The name of a file, model or stream as other processes see it: what is here, from the root."""
    return str(Path(name).absolute()) if name is not None and Path(name).exists() else name


def model_arguments(
    kind: RuntimeKind, model: str | None, backbone: str | None, device: str, size: str | None
) -> dict[str, Any]:
    """The arguments of `open_model` on another machine of a cluster, which sees the same paths."""
    return {"model": absolute(model), "backbone": absolute(backbone), "runtime": kind, "device": device, "size": size}


def changed_emission(settings: "EmitConfig", overrides: Sequence[str], *, shown: bool) -> "EmitConfig":
    """Apply the user's key=value changes to a model's emission; an InputError for one without effect.

    Args:
        settings: those of the model.
        overrides: key=value.
        shown: for display along a video or a feed, where each slot is read separately (see `EmitConfig.shown`).
    """
    from ballcast.core.anticipator_config import EmitConfig
    from ballcast.core.config import from_dict, parse_overrides, to_dict

    tree = parse_overrides([text.removeprefix("emit.") for text in overrides])
    changed = from_dict(EmitConfig, {**to_dict(settings), **tree}).of_loss(settings.inflation)
    if shown and tree.get("mode") == "expected":
        raise InputError(
            "mode=expected is for submissions (--features); along a video or a feed use mode=slot or class"
        )
    made = changed.shown if shown else changed
    if idle := [f"{key}={tree[key]}" for key in made.unused if key in tree]:
        other = "mode=slot or mode=class" if made.mode == "expected" else "mode=expected (--features)"
        raise InputError(f"{idle[0]} changes nothing with mode={made.mode}; leave it out, or use {other}")
    return made

"""`ballcast export`: write a model for a machine without torch."""

from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.runtime import ModelBackbone
from ballcast.cli.shell import app, new_console

ModelArgument = Annotated[
    str | None, typer.Argument(help="A model's folder, or its id on the hub; embedded by default.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write; an export there is replaced.")]
Thorough = Annotated[
    bool, typer.Option("--thorough", help="Compare 200 windows instead of 20; takes several times as long.")
]
Video = Annotated[Path | None, typer.Option("--video", help="Frames to compare on; default: embedded.")]


@app.command()
def export(
    model: ModelArgument = None,
    backbone: ModelBackbone = None,
    out: Out = Path("exported"),
    video: Video = None,
    thorough: Thorough = False,
) -> None:
    """Export a model and its backbone as graphs that run without torch, and check that they agree with torch.

    Writes four ONNX files and a config.json: a stack of frames to its map, a snippet's maps to features, a window's
    features to tokens, tokens to slots. Any batch and any frame size. Every output is first compared with torch's on 20
    windows of a real video; if they differ by more than 1e-4, nothing is written.

    `predict`, `live` and `serve` read the folder without torch. A model of event feeds has no backbone: its export has
    two files, for `predict --events`.

    Examples:

    ballcast export --out exported

    ballcast export runs/paper/best --backbone my-backbone --video match.mp4 --out exported
    """
    from ballcast.core.embedded import SAMPLES, choose_models
    from ballcast.core.files import require_file

    frames = video or SAMPLES / "test" / "excerpt.mp4"
    require_file(frames, "video")  # before torch is imported, which takes seconds
    chosen, network = (model, backbone) if model else choose_models(model, backbone, "export")
    console = new_console(stderr=True)
    with console.status("opening the networks") as status:
        from ballcast.export.export import export as run

        done = run(chosen, network, out, video=frames, thorough=thorough, log=status.update)
    if done.reused:
        typer.echo(f"{out}: holds this export already, compared with torch before; nothing was computed")
    size = sum((out / record.file).stat().st_size for record in done.config.files.values()) / 1e6
    worst = max(done.apart, key=lambda name: done.apart[name])
    figures = done.config.figures
    apart = f"{done.apart[worst]:.1e} from torch at most ({worst}, {figures['windows_compared']:.0f} windows)"
    typer.echo(f"{out}: {done.config.kind} {done.config.precision}, {size:.1f} MB; {apart}")

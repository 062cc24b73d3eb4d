"""`ballcast export`: a model for a machine without torch."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ballcast.cli.shell import app, new_console


@app.command()
def export(
    model: Annotated[
        str | None, typer.Argument(help="A model's folder, or its id on the hub; embedded by default.")
    ] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help="The backbone it was trained on.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; an export there is replaced.")] = Path(
        "exported"
    ),
    format_: Annotated[
        Literal["onnx", "torch"],
        typer.Option("--format", help="onnx: for --runtime onnx; torch: .pt2 files of torch.export."),
    ] = "onnx",
    int8: Annotated[
        bool, typer.Option("--int8", help="The 2D network's convolutions in INT8: smaller and quicker on a CPU.")
    ] = False,
    video: Annotated[
        Path | None,
        typer.Option("--video", help="Real pictures to compare on and to set INT8's ranges by; default: embedded."),
    ] = None,
) -> None:
    """Write a model and its backbone as graphs that run without torch, once they are seen to agree with it.

    Four ONNX files and a config.json: a stack of pictures to its map, a clip's maps to features, a window's features to
    tokens, tokens to slots. Any batch and any picture size. Before anything is written, every output is compared with
    torch's along a real video; more than 1e-4 apart, and nothing is. With --int8 the score of both on an embedded
    excerpt is shown: 10 clips, a look rather than a measurement (docs/export.md has one).

    Then `predict`, `live` and `serve` take the folder with --runtime onnx (pip install 'ballcast[onnx]').

    Examples:

    ballcast export --out exported

    ballcast export runs/paper/best --backbone my-backbone --int8 --video match.mp4 --out exported
    """
    from ballcast.core.hub import choose_models
    from ballcast.export.export import EXCERPT
    from ballcast.export.export import export as run

    chosen, network = choose_models(model, backbone, "export")
    console = new_console()
    with console.status("opening the networks") as status:

        def tell(step: str) -> None:
            status.update(step)

        done = run(chosen, network, out, kind=format_, int8=int8, video=video or EXCERPT, log=tell)
    size = sum((out / record.file).stat().st_size for record in done.config.files.values()) / 1e6
    worst = max(done.apart, key=lambda name: done.apart[name])
    figures = done.config.figures
    apart = f"{done.apart[worst]:.1e} from torch at most ({worst}, {figures['windows_compared']:.0f} windows)"
    before = " before it was rounded to INT8" if int8 else ""
    typer.echo(f"{out}: {done.config.kind} {done.config.precision}, {size:.1f} MB; {apart}{before}")
    if int8:
        full, small = figures["excerpt_map_fp32"], figures["excerpt_map_int8"]
        typer.echo(
            f"mAP on the embedded excerpt: fp32 {full:.2f}, INT8 {small:.2f}; its features are "
            f"{100 * figures['int8_features_from_fp32']:.1f} % from fp32's"
        )

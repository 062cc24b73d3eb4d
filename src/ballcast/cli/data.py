"""Commands that fetch, look at, convert and import data."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import app, data_app, new_console, resumable
from ballcast.core.errors import InputError
from ballcast.core.hub import SNBAA


@app.command()
def download(
    splits: Annotated[
        list[str] | None, typer.Argument(help="train, valid, test, challenge; none means all four.")
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder to unpack to.")] = Path("snbaa"),
    resolution: Annotated[str, typer.Option(help="224p (398×224) or 720p (1280×720, much larger).")] = "224p",
    keep_zips: Annotated[bool, typer.Option("--keep-zips", help="Keep the zips beside what they held.")] = False,
    repo: Annotated[str, typer.Option(help="The data set on the hub.")] = SNBAA,
    retries: Annotated[int, typer.Option(min=0, help="Times in a row a cut connection is taken up again.")] = 5,
) -> None:
    """Fetch SN-BAA from the Hugging Face hub, check it and unpack it.

    The archives are encrypted; their password comes with SoccerNet's NDA (https://www.soccer-net.org/data).
    Give it in SOCCERNET_PASSWORD, or when asked.

    If it stops, for whatever reason, run the same command again: it goes on from where it was.
    HF_ENDPOINT and HF_TOKEN (or `hf auth login`) are honoured.

    Example: ballcast download valid test --to ~/snbaa
    """
    from ballcast.data.download import download as fetch_and_unpack

    with resumable():
        fetch_and_unpack(
            splits or [],
            to,
            password=_soccernet_password,
            resolution=resolution,
            repo_id=repo,
            keep_zips=keep_zips,
            retries=retries,
            say=typer.echo,
        )


def _soccernet_password() -> str:
    """From SOCCERNET_PASSWORD, else asked for without showing it."""
    given = os.environ.get("SOCCERNET_PASSWORD")
    if not given and not sys.stdin.isatty():
        raise InputError(
            "the archives need a password: set SOCCERNET_PASSWORD to the one that came with SoccerNet's NDA"
        )
    return given or typer.prompt("Password of the archives (it comes with SoccerNet's NDA)", hide_input=True)


@data_app.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(help="Where SN-BAA was unpacked: its root, a resolution or one split.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also if a split has not SN-BAA's number of clips.")
    ] = False,
) -> None:
    """Count clips and actions per split, compare with SN-BAA's numbers, and name every defect with its place.

    Exits with 1 if there are defects. SN-BAA has 4587, 1169, 2376 and 2262 clips in train, valid, test and challenge;
    other numbers, as of a subset, are only named.

    Example: ballcast data check ~/snbaa
    """
    from rich.markup import escape
    from rich.table import Table

    from ballcast.core.actions import SHORT_NAMES
    from ballcast.core.terminal import print_table
    from ballcast.data.soccernet import OFFICIAL_CLIPS, check, count_deviations

    console, splits = new_console(), check(folder)
    for place in dict.fromkeys(split.folder.parent for split in splits):  # a table for each resolution
        title = f"{escape(place.name)}: actions to anticipate (observed)"
        table = Table(title=title, title_justify="left", title_style="bold")
        table.add_column("")
        here = [split for split in splits if split.folder.parent == place]
        for split in here:
            table.add_column(split.name, justify="right")
        table.add_row("clips", *(str(len(split.clips)) for split in here))
        if any(split.name in OFFICIAL_CLIPS for split in here):
            table.add_row("SN-BAA's", *(str(OFFICIAL_CLIPS.get(split.name, "")) for split in here))
        table.add_row("videos", *(str(split.videos) for split in here), end_section=True)
        counts = [(split.counts("anticipation"), split.counts("observation"), split.labelled) for split in here]
        for c, name in enumerate(SHORT_NAMES):
            table.add_row(name, *(f"{a[c]} ({o[c]})" if labelled else "no labels" for a, o, labelled in counts))
        print_table(console, table)
    defects = [defect for split in splits for defect in split.defects]
    for defect in defects:
        console.print(str(defect), style="red", markup=False, soft_wrap=True)
    deviations = count_deviations(splits)
    for deviation in deviations:
        console.print(deviation, style="yellow", markup=False, soft_wrap=True)
    if not deviations and any(split.name in OFFICIAL_CLIPS for split in splits):
        typer.echo("the numbers of clips are SN-BAA's")
    typer.echo(f"{len(defects)} defect(s)" if defects else "no defects")
    if defects or (strict and deviations):
        raise typer.Exit(1)


@data_app.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(help="Labels-ball.json, results_anticipation.json (or zip), or OSL JSON.")],
    target: Annotated[Path, typer.Argument(help="File to write.")],
) -> None:
    """Turn labels or predictions into OSL JSON v2, and OSL JSON back into what it came from.

    Example: ballcast data convert results_anticipation.json osl.json
    """
    from ballcast.inference.convert import convert

    typer.echo(f"{target}: {convert(source, target)}")


@data_app.command("import")
def data_import(
    source: Annotated[
        Path, typer.Argument(help="Folder of clip_1.npy, …: (windows, clips, width), or windows in a row.")
    ],
    out: Annotated[Path, typer.Argument(help="The feature store to make.")],
    name: Annotated[str, typer.Option("--name", help="The backbone that made them; stores of one name may be mixed.")],
    clips: Annotated[int, typer.Option(min=1, help="Clips a window, for files of (windows · clips, width).")] = 33,
    every: Annotated[int, typer.Option(min=1, help="Frames from one window to the next.")] = 125,
) -> None:
    """Make a feature store of features computed elsewhere.

    A Labels-ball.json among the files is copied into the store, and every clip it names must be there.

    Example: ballcast data import my-features/train features/train --name videomae-b
    """
    from ballcast.data.soccernet import read_labels
    from ballcast.features.importer import import_npy
    from ballcast.features.store import LABELS

    labelled = (source / LABELS).is_file()
    expected = [clip.name for clip in read_labels(source / LABELS)] if labelled else []
    store = import_npy(source, out, name=name, clips=clips, every=every, expected=expected)
    typer.echo(f"{out}: {len(store)} clips, {len(store.window_starts)} windows of {store.clips} × {store.width}")

"""`ballcast download` and `ballcast data …`: download, check, verify, convert, import and publish data."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import app, data_app, new_console, resumable
from ballcast.core.errors import InputError
from ballcast.core.hub import SNBAA
from ballcast.core.progress import progress_bar


@app.command()
def download(
    splits: Annotated[
        list[str] | None,
        typer.Argument(help="train, valid, test, challenge; all four by default."),
    ] = None,
    to: Annotated[Path, typer.Option(help="The folder to unpack to.")] = Path("snbaa"),
    resolution: Annotated[str, typer.Option(help="224p (398×224) or 720p (1280×720, much larger).")] = "224p",
    keep_zips: Annotated[bool, typer.Option("--keep-zips", help="Keep the zips after unpacking.")] = False,
    repo: Annotated[str, typer.Option(help="The data set on the hub.")] = SNBAA,
    retries: Annotated[int, typer.Option(min=0, help="Attempts in a row after a lost connection.")] = 5,
) -> None:
    """Download SN-BAA from the Hugging Face hub and check it.

    The archives are encrypted; their password comes with SoccerNet's NDA (https://www.soccer-net.org/data).
    Set it in SOCCERNET_PASSWORD, or type it at the prompt.

    If it stops, run the same command again: it resumes. HF_ENDPOINT and HF_TOKEN (or `hf auth login`) are used.

    Example: ballcast download valid test --to ~/snbaa
    """
    from ballcast.data.download.download import download as fetch_and_unpack

    with resumable():
        fetch_and_unpack(
            splits or [],
            to,
            password=_soccernet_password,
            resolution=resolution,
            repo_id=repo,
            keep_zips=keep_zips,
            retries=retries,
            log=typer.echo,
        )


def _soccernet_password() -> str:
    """Read the password from SOCCERNET_PASSWORD, else from a prompt that does not show it."""
    given = os.environ.get("SOCCERNET_PASSWORD")
    if not given and not sys.stdin.isatty():
        raise InputError(
            "the archives need a password: set SOCCERNET_PASSWORD to the one that came with SoccerNet's NDA"
        )
    return given or typer.prompt("Password of the archives (it comes with SoccerNet's NDA)", hide_input=True)


@data_app.command("check")
def data_check(
    folder: Annotated[Path, typer.Argument(help="SN-BAA's folder: its root, a resolution or one split.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Also exit with 1 if a split has not SN-BAA's number of clips.")
    ] = False,
) -> None:
    """Count clips and actions per split, compare with SN-BAA's numbers, and list every defect with its place.

    Exits with 1 if there are defects. SN-BAA has 4587, 1169, 2376 and 2262 clips in train, valid, test and challenge;
    other numbers, as of a subset, are only reported.

    Example: ballcast data check ~/snbaa
    """
    from rich.markup import escape
    from rich.table import Table

    from ballcast.core.actions import SHORT_NAMES
    from ballcast.core.util import print_table
    from ballcast.data.labels.soccernet import OFFICIAL_CLIPS, check, count_deviations

    console = new_console()
    splits = check(folder)
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


@data_app.command("verify")
def data_verify(
    folder: Annotated[Path, typer.Argument(help="Feature stores, runs, models, exports or downloads, at any depth.")],
) -> None:
    """Verify the checksum of every file below a folder, and list what is damaged or missing.

    Exits with 2 if anything is. Files written by older versions have no checksum; they are counted and not judged.

    Example: ballcast data verify runs/paper
    """
    from ballcast.workflows.verify import verify

    console = new_console(stderr=True)
    with progress_bar(console, "bytes") as progress:
        found = verify(folder, progress)
    for sentence in found.damaged:
        console.print(sentence, style="red", markup=False, soft_wrap=True)
    without = f", {found.unknown} without a checksum" if found.unknown else ""
    typer.echo(f"{folder}: {found.whole} file(s) whole, {len(found.damaged)} damaged{without}")
    if found.damaged:
        raise typer.Exit(2)


@data_app.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(help="Labels-ball.json, results_anticipation.json (or zip), or OSL JSON.")],
    target: Annotated[Path, typer.Argument(help="File to write.")],
) -> None:
    """Convert labels or predictions to OSL JSON v2, and OSL JSON back to the original format.

    Example: ballcast data convert results_anticipation.json osl.json
    """
    from ballcast.inference.convert import convert

    typer.echo(f"{target}: {convert(source, target)}")


@data_app.command("import")
def data_import(
    source: Annotated[
        Path, typer.Argument(help="Folder of clip_1.npy, …: (windows, snippets, width), or windows in a row.")
    ],
    out: Annotated[Path, typer.Argument(help="The feature store to make.")],
    name: Annotated[str, typer.Option("--name", help="The backbone that made them; stores of one name may be mixed.")],
    snippets: Annotated[
        int,
        typer.Option(
            "--snippets", "--clips", min=1, help="Snippets per window, for files of (windows · snippets, width)."
        ),
    ] = 33,
    every: Annotated[int, typer.Option(min=1, help="Frames from one window to the next.")] = 125,
) -> None:
    """Import features computed elsewhere into a feature store.

    A Labels-ball.json among the files is copied into the store, and every clip it names must be there.

    Example: ballcast data import my-features/train features/train --name videomae-b
    """
    from ballcast.data.labels.soccernet import read_labels
    from ballcast.features.store import LABELS
    from ballcast.features.store_import import import_npy

    labelled = (source / LABELS).is_file()
    expected = [clip.name for clip in read_labels(source / LABELS)] if labelled else []
    store = import_npy(source, out, name=name, snippets=snippets, every=every, expected=expected)
    typer.echo(f"{out}: {len(store)} clips, {len(store.window_starts)} windows of {store.snippets} × {store.width}")


@data_app.command("push")
def data_push(
    folder: Annotated[
        Path, typer.Argument(help="A model or backbone (runs/paper/best), a feature store, or a folder of stores.")
    ],
    repo_id: Annotated[str, typer.Argument(help="The repository: owner/name.")],
    public: Annotated[bool, typer.Option("--public", help="Make it public; by default it is private.")] = False,
    licence: Annotated[
        str | None, typer.Option(help="By the hub's short name; default: apache-2.0, and other for features.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="For an anticipator's card: the hub id of the backbone it reads.")
    ] = None,
) -> None:
    """Publish a model, a backbone or features on the Hugging Face hub, with a card.

    The card has the data, the scores with their seed, the calibration, known leaks and the licence. The id can then be
    used in place of a folder: --model, --backbone, data.features. If it stops, run the same command again: files
    already uploaded are not sent twice. Labels in a store are uploaded too; check the terms of the videos before
    --public.

    HF_ENDPOINT and HF_TOKEN (or `hf auth login`) are used.

    Examples:

    ballcast data push runs/backbone/best me/backbone

    ballcast data push runs/paper/best me/anticipator --backbone me/backbone --public

    ballcast data push features me/snbaa-features
    """
    with resumable():
        address = push_folder(folder, repo_id, private=not public, licence=licence, backbone=backbone)
    typer.echo(f"{address}: uploaded, {'public' if public else 'private'}")


def push_folder(folder: Path, repo_id: str, *, private: bool, licence: str | None, backbone: str | None) -> str:
    """Read and check all of a folder, then upload it; returns its address.

    Args:
        folder: of a model, a backbone, a feature store, or several stores.
        repo_id: owner/name.
        private: visible to the owner only.
        licence: the hub's short name; None: apache-2.0, or other for features.
        backbone: hub id for an anticipator's card.
    """
    from ballcast.core.files import read_json
    from ballcast.features.store import FILE_NAME as MANIFEST

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of a model, a backbone or features")
    stores = [folder] if (folder / MANIFEST).is_file() else sorted(p.parent for p in folder.glob(f"*/{MANIFEST}"))
    if stores:
        from ballcast.features.store import FeatureStore, push_stores

        opened = [FeatureStore.open(store) for store in stores]
        return push_stores(opened, repo_id, private=private, licence=licence or "other")
    licence = licence or "apache-2.0"
    about = read_json(folder / "config.json", "model's config") if (folder / "config.json").is_file() else None
    if isinstance(about, dict) and about.get("kind") == "ballcast-backbone":
        from ballcast.features.backbone import Backbone

        return Backbone.from_pretrained(folder).push_to_hub(repo_id, private=private, licence=licence, folder=folder)
    if about is None and not (folder / "best").is_dir():
        raise InputError(f"{folder}: contains no model, no backbone and no features; give the folder of one of these")
    from ballcast.model.anticipator import Anticipator

    model = Anticipator.from_pretrained(folder)
    return model.push_to_hub(repo_id, private=private, licence=licence, backbone=backbone, folder=folder)

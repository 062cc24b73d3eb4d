"""`ballcast data push`: models and features to the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import data_app, resumable
from ballcast.core.errors import InputError


@data_app.command("push")
def data_push(
    folder: Annotated[
        Path, typer.Argument(help="A model or backbone (runs/paper/best), a feature store, or a folder of stores.")
    ],
    repo_id: Annotated[str, typer.Argument(help="Where it goes: owner/name.")],
    public: Annotated[bool, typer.Option("--public", help="For all to see; without it only you do.")] = False,
    licence: Annotated[
        str | None, typer.Option(help="By the hub's short name; default: apache-2.0, and other for features.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="For an anticipator's card: the hub id of the backbone it reads.")
    ] = None,
) -> None:
    """Put a model, a backbone or features on the Hugging Face hub, with a card that tells what was recorded of them.

    The card has the data, the scores with their seed, the calibration, known leaks and the licence. Afterwards the id
    stands wherever a folder does: --model, --backbone, data.features. If it stops, run the same command again: what has
    arrived is not sent twice. Labels in a store travel with it; mind the terms of the videos before you add --public.

    HF_ENDPOINT and HF_TOKEN (or `hf auth login`) are honoured.

    Examples:

    ballcast data push runs/backbone/best me/backbone

    ballcast data push runs/paper/best me/anticipator --backbone me/backbone --public

    ballcast data push features me/snbaa-features
    """
    with resumable():
        address = push_folder(folder, repo_id, private=not public, licence=licence, backbone=backbone)
    typer.echo(f"{address}: uploaded, {'for all to see' if public else 'for you alone to see'}")


def push_folder(folder: Path, repo_id: str, *, private: bool, licence: str | None, backbone: str | None) -> str:
    """What `folder` holds, read and checked whole before anything is sent; returns the address."""
    from ballcast.core.files import read_json
    from ballcast.features.manifest import FILE_NAME as MANIFEST

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give that of a model, a backbone or features")
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
        raise InputError(f"{folder}: holds no model, no backbone and no features; give the folder of one of these")
    from ballcast.model.anticipator import Anticipator

    model = Anticipator.from_pretrained(folder)
    return model.push_to_hub(repo_id, private=private, licence=licence, backbone=backbone, folder=folder)

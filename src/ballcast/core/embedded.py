"""Find models and recipes in the package, and the files that name one another."""

import re
from contextlib import suppress
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.files import read_json

SAMPLES = Path(__file__).parent.parent / "samples"
RECIPES = Path(__file__).parent.parent / "configs"
BACKBONE = SAMPLES / "backbone"
MODEL = SAMPLES / "anticipator"
FEED_MODEL = SAMPLES / "feed_model"
SPOT_MODEL = SAMPLES / "spot_model"
EVENTS = "events"  # the name of the embedded model of event feeds
SPOTS = "spots"  # the name of the embedded model of spots


def embedded_model(model: Path | str | None) -> Path | str:
    """Replace None, "events" and "spots" by the folders of the embedded models of videos, event feeds and spots.

    Returns:
        That folder, or `model` itself if it names another.
    """
    embedded = {None: (MODEL, "videos"), EVENTS: (FEED_MODEL, "event feeds"), SPOTS: (SPOT_MODEL, "spots")}
    name = None if model is None else str(model)
    if model is not None and name not in embedded:
        return model
    folder, kind = embedded[name]
    if not (folder / "config.json").is_file():
        raise InputError(f"no model of {kind} is embedded in this ballcast; give the folder or hub id of one")
    return folder


def named_backbone(model: Path | str) -> str | None:
    """The folder of the backbone that a model trained end to end names in its metadata, if it is there; else None."""
    path = Path(model) / "config.json"
    tree = read_json(path, "model's config") if path.is_file() else None
    for key in ("metadata", "backbone", "folder"):
        tree = tree.get(key) if isinstance(tree, dict) else None
    if not isinstance(tree, str) or not re.fullmatch(r"\.\./[\w.-]+", tree):  # only a folder beside the model's own
        return None
    folder = (Path(model).resolve() / tree).resolve()
    return str(folder) if (folder / "config.json").is_file() else None


def choose_models(model: str | None, backbone: str | None, command: str) -> tuple[str, str]:
    """Choose the anticipator and the backbone to use with video: both as given, or both the embedded ones.

    Args:
        model, backbone: folder, hub id or checkpoint. They belong together, so only one of them is an InputError,
            unless the model was trained end to end and names its backbone; so is none where nothing is embedded.
        command: the command to name in the error ("predict").

    Returns:
        The names of the anticipator and the backbone.
    """
    if model is not None and backbone is not None:
        return model, backbone
    if model is not None and (backbone_of_model := named_backbone(model)):
        return model, backbone_of_model
    if model is not None:
        raise InputError(
            f"{command} needs the backbone the model was trained on: give --backbone with its folder or hub id, or "
            "with the published lRomul checkpoint (.pth)"
        )
    trained = "give --model with the folder or hub id of one made by `ballcast train`"
    if backbone is not None:
        raise InputError(f"{command} needs a model for this backbone: {trained}")
    if not (MODEL / "config.json").exists() or not (BACKBONE / "config.json").exists():
        raise InputError(f"{command} needs a model: {trained}, and --backbone with the one it was trained on")
    return str(MODEL), str(BACKBONE)


def find_recipe(path: Path) -> Path:
    """Return `path` if that file exists, else the recipe of this name in the package.

    `paper`, `paper.yaml` and `configs/paper.yaml` all name the one in the package, so the commands in the docs work in
    any folder.
    """
    if path.is_file() or path.parent not in (Path(), Path("configs")) or path.suffix not in ("", ".yaml"):
        return path
    recipe = RECIPES / f"{path.stem}.yaml"
    if recipe.is_file():
        return recipe
    if path.suffix or path.exists():
        return path
    raise InputError(
        f"{path}: no such file, and no recipe of this name comes with ballcast; there are {', '.join(recipe_names())}"
    )


def find_extended(path: Path, name: str) -> Path:
    """Return what the recipe `path` extends: the file `name` beside it, or the recipe of this name in the package.

    Unlike `find_recipe`, it never looks in the current folder.
    """
    with suppress(OSError, ValueError):  # a name that no file can have
        if (path.parent / name).is_file():
            return path.parent / name
    if name.removesuffix(".yaml") in recipe_names():
        return RECIPES / f"{name.removesuffix('.yaml')}.yaml"
    raise InputError(
        f"{path}: extends {name!r}, but there is no such file beside it, and no recipe of this name comes with "
        f"ballcast; there are {', '.join(recipe_names())}"
    )


def recipe_names() -> list[str]:
    """The recipes of the package."""
    return sorted(recipe.stem for recipe in RECIPES.glob("*.yaml"))

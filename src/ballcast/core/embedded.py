"""What comes inside the package: recipes, and a backbone and an anticipator used where the user names none."""

from pathlib import Path

from ballcast.core.errors import InputError

SAMPLES = Path(__file__).parent.parent / "samples"
RECIPES = Path(__file__).parent.parent / "configs"
BACKBONE, MODEL = SAMPLES / "backbone", SAMPLES / "anticipator"


def choose_models(model: str | None, backbone: str | None, command: str) -> tuple[str, str]:
    """The names (folder, hub id or checkpoint) of the anticipator and the backbone to use with video.

    Both as given, or both the embedded ones. They belong together, so one alone is an InputError; so are none where
    nothing is embedded. `command` names who asks ("predict").
    """
    if model is not None and backbone is not None:
        return model, backbone
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
    """The YAML file that `path` names: itself if it is there, else the package's own recipe of this name.

    `paper`, `paper.yaml` and `configs/paper.yaml` all name the package's: what the docs say works in any folder.
    """
    if path.is_file() or path.parent not in (Path(), Path("configs")) or path.suffix not in ("", ".yaml"):
        return path
    own = RECIPES / f"{path.stem}.yaml"
    if own.is_file():
        return own
    if path.suffix or path.exists():
        return path
    known = ", ".join(sorted(recipe.stem for recipe in RECIPES.glob("*.yaml")))
    raise InputError(f"{path}: no such file, and no recipe of this name comes with ballcast; there are {known}")

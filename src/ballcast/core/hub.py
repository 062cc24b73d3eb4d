"""Find models and recipes in the package, in a folder or on the Hugging Face hub; upload files to the hub."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from ballcast.core.errors import InputError, first_line
from ballcast.core.files import read_json, working_folder

SAMPLES = Path(__file__).parent.parent / "samples"
RECIPES = Path(__file__).parent.parent / "configs"
BACKBONE, MODEL = SAMPLES / "backbone", SAMPLES / "anticipator"
FEED_MODEL = SAMPLES / "feed_model"
EVENTS = "events"  # the name of the embedded model of event feeds


def embedded_model(model: Path | str | None) -> Path | str:
    """Replace None and "events" by the folders of the embedded models of videos and of event feeds.

    Returns:
        That folder, or `model` itself if it names another.
    """
    if model is not None and str(model) != EVENTS:
        return model
    folder = MODEL if model is None else FEED_MODEL
    if not (folder / "config.json").is_file():
        kind = "videos" if model is None else "event feeds"
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
    if model is not None and (own := named_backbone(model)):
        return model, own
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
    own = RECIPES / f"{path.stem}.yaml"
    if own.is_file():
        return own
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


SNBAA = "SoccerNet/ActionAnticipation"  # the challenge's data set
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CARD = "README.md"

TRANSIENT = (408, 429, 500, 502, 503, 504)  # statuses after which another try may succeed

Kind = Literal["model", "dataset"]  # types of repositories on the hub; features are a data set


def check_hub_id(repo_id: str) -> None:
    """Raise an InputError if `repo_id` is not of the form owner/name."""
    if not HUB_ID.fullmatch(repo_id):
        raise InputError(f"{repo_id!r} is not a name on the hub; it has the form owner/name")


def locate(source: Path | str, files: Sequence[str], also: Sequence[str] = (), *, kind: Kind = "model") -> Path:
    """Return the folder of a model or data set; download it if `source` is a hub id.

    Args:
        source: a folder, or a hub id such as someone/name.
        files: files to download. They may be patterns ("shard-*.safetensors").
        also: files to download if they exist.
        kind: which type of repository it is.
    """
    if not str(source).strip():
        raise InputError("the name of the folder is empty; give an existing folder or a hub id like someone/name")
    folder = Path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise InputError(f"{folder}: is a file; give the folder that holds {' and '.join(files)}")
    if not HUB_ID.fullmatch(str(source)):
        raise InputError(f"{source}: no such folder; give an existing folder or a hub id like someone/name")
    from huggingface_hub import snapshot_download

    with explain_hub_errors(f"{source}: no such folder, and the hub does not provide it", kind):
        return Path(snapshot_download(str(source), repo_type=kind, allow_patterns=[*files, *also]))


def push(
    repo_id: str, files: Mapping[str, Path | bytes], *, private: bool, kind: Kind = "model", replaces: Sequence[str]
) -> str:
    """Upload files to the hub in one commit, so that a download gets either all old or all new files.

    If the connection breaks, the next call does not send again what has arrived.

    Args:
        repo_id: owner/name; the repository is created if it does not exist.
        files: content or local path, by path in the repository.
        private: whether the repository is private. An existing one must agree, since published files cannot be
            taken back.
        kind: the type of repository.
        replaces: patterns of older files to remove unless they are among `files`.

    Returns:
        The address of the repository.
    """
    check_hub_id(repo_id)
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    with explain_hub_errors(f"{repo_id}: cannot upload to the hub", kind):
        api = HfApi()
        address = api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True)
        if (found := api.repo_info(repo_id, repo_type=kind).private) != private:
            actual, wanted = ("private", "public") if found else ("public", "private")
            raise InputError(
                f"{address}: is {actual} already, and {wanted} was requested; change that there, or ask for {actual}"
            )
        existing = api.list_repo_files(repo_id, repo_type=kind)
        stale = [name for name in existing if name not in files and any(fnmatchcase(name, p) for p in replaces)]
        changes = [CommitOperationAdd(name, content) for name, content in files.items()]
        removed = [CommitOperationDelete(name) for name in stale]
        api.create_commit(repo_id, [*changes, *removed], repo_type=kind, commit_message="From ballcast")
    return str(address)


def push_model(
    repo_id: str,
    names: Sequence[str],
    write: Callable[[Path], None],
    card: str,
    *,
    private: bool,
    folder: Path | None = None,
) -> str:
    """Upload the files of a model and its card.

    Args:
        repo_id: owner/name.
        names: the file names that a model folder may contain.
        write: saves the model into a folder; not called if `folder` is given.
        card: the model card in Markdown.
        private: as in `push`.
        folder: a saved model to upload as it is.

    Returns:
        The address of the repository.
    """
    with working_folder() as temporary:
        if folder is None:
            folder = temporary
            write(folder)
        files: dict[str, Path | bytes] = {name: folder / name for name in names if (folder / name).is_file()}
        return push(repo_id, {**files, CARD: card.encode()}, private=private, replaces=names)


@contextmanager
def explain_hub_errors(what: str, kind: Kind = "model", again: str = "run again") -> Iterator[None]:
    """Turn errors of the hub and of the connection to it into an InputError of one sentence.

    Args:
        what: the failed action, with the name of the repository, file or folder.
        kind: what the repository holds.
        again: the advice where a second try may help.
    """
    from huggingface_hub.errors import HFValidationError, HTTPError, LocalEntryNotFoundError

    try:
        yield
    except (HTTPError, HFValidationError, OSError, RuntimeError, ValueError) as error:
        # huggingface_hub wraps an error that it met while sending a file or before it looked into its cache.
        wrapped = type(error) is RuntimeError or isinstance(error, LocalEntryNotFoundError)
        cause = error.__cause__ if wrapped and error.__cause__ else error
        raise InputError(f"{what}: {_reason(cause, kind, again)}") from None


def _reason(error: BaseException, kind: Kind, again: str) -> str:
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HTTPError, OfflineModeIsEnabled

    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    # hf_xet reports a refused token as a PermissionError without a file name.
    refused = isinstance(error, PermissionError) and error.filename is None
    if isinstance(error, GatedRepoError):
        return (
            f"the hub refuses access ({status}); accept the terms on the page of this repository, log in with "
            f"`hf auth login` (or set HF_TOKEN) and {again}"
        )
    if status == 401 or refused:
        return f"not authenticated (401); log in with `hf auth login`, or set HF_TOKEN, and {again}"
    if status == 403:
        return "your token has no permission for this (403); use one that has, with `hf auth login` or HF_TOKEN"
    if status == 404:
        names = {"model": "model", "dataset": "data set"}
        return f"there is no such {names[kind]} or no such file in it (404)"
    if status in TRANSIENT:
        return f"the hub answered with status {status}; {again} later"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set; unset it and run again"
    if isinstance(error, HTTPError | ConnectionError) and status is None:
        return f"the connection to {constants.ENDPOINT} failed ({first_line(error)}); check the network and {again}"
    return first_line(error)


def check_weights(expected: Mapping[str, Any], given: Mapping[str, Any], where: str, hint: str = "") -> None:
    """Raise an InputError unless a file's tensors have the names, shapes and kinds of number that a network has.

    Args:
        expected: the network's `state_dict()`, on any device, also "meta".
        given: the file's tensors by name.
        where: the file, for the error.
        hint: what to do about it, added to the error.
    """
    if missing := expected.keys() - given.keys():
        raise InputError(f"{where}: lacks weight {min(missing)!r}{hint}")
    if unknown := given.keys() - expected.keys():
        raise InputError(f"{where}: has an unknown weight {min(unknown)!r}{hint}")
    for key, value in given.items():
        shape = tuple(expected[key].shape)
        if (found := tuple(value.shape) if hasattr(value, "shape") else "none") != shape:
            raise InputError(f"{where}: {key} has shape {found} instead of {shape}{hint}")
        if value.is_floating_point() != expected[key].is_floating_point():
            kind = "floating-point numbers" if expected[key].is_floating_point() else "integers"
            raise InputError(f"{where}: {key} holds {value.dtype} instead of {kind}{hint}")

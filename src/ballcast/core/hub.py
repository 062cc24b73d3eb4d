"""Where models and recipes come from: the package itself, a folder, or the Hugging Face hub."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

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


SNBAA = "SoccerNet/ActionAnticipation"  # the challenge's data set
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CARD = "README.md"

Kind = Literal["model", "dataset"]  # the hub keeps the two apart; features are a data set


def locate(source: Path | str, files: Sequence[str], also: Sequence[str] = (), *, kind: Kind = "model") -> Path:
    """The folder `source` names: itself if it exists, else the `files` of the hub's copy of it, downloaded.

    `also`: files to fetch if they are there. Both may be patterns ("shard-*.safetensors").
    """
    if not str(source).strip():
        raise InputError("an empty name names no folder; give a folder that is there or a hub id like someone/name")
    folder = Path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise InputError(f"{folder}: is a file; give the folder that holds {' and '.join(files)}")
    if not HUB_ID.fullmatch(str(source)):
        raise InputError(f"{source}: no such folder; give a folder that is there or a hub id like someone/name")
    from huggingface_hub import snapshot_download

    with _explained(f"{source}: no such folder, and not to be had from the hub"):
        return Path(snapshot_download(str(source), repo_type=kind, allow_patterns=[*files, *also]))


def push(
    repo_id: str, files: Mapping[str, Path | bytes], *, private: bool, kind: Kind = "model", replaces: Sequence[str]
) -> str:
    """Upload the files by their paths in the repository, all in one commit; returns its address.

    The repository is made if it is not there; one that is there must be as `private` says, since what was once public
    cannot be taken back. Older files that match a pattern of `replaces` and are not among the new ones are removed.
    Whoever downloads sees either all of the old state or all of the new one. What is uploaded when the connection
    breaks is not sent again by the next call.
    """
    if not HUB_ID.fullmatch(repo_id):
        raise InputError(f"{repo_id!r} is not a name on the hub; it has the form owner/name")
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    with _explained(f"{repo_id}: cannot upload to the hub"):
        api = HfApi()
        address = api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True)
        if (found := api.repo_info(repo_id, repo_type=kind).private) != private:
            is_, asked = ("private", "public") if found else ("public", "private")
            raise InputError(
                f"{address}: is {is_} already, and {asked} was asked for; change it on that page, or ask for {is_}"
            )
        there = api.list_repo_files(repo_id, repo_type=kind)
        stale = [name for name in there if name not in files and any(fnmatchcase(name, p) for p in replaces)]
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
    """Upload a model's files and its card; returns the address.

    `names`: what its folder may hold. `write` makes such a folder, unless `folder` is one, which then goes as it is.
    """
    with tempfile.TemporaryDirectory() as temporary:
        if folder is None:
            folder = Path(temporary)
            write(folder)
        files: dict[str, Path | bytes] = {name: folder / name for name in names if (folder / name).is_file()}
        return push(repo_id, {**files, CARD: card.encode()}, private=private, replaces=names)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """The faults of the hub and of the way to it, each as one sentence: `what` failed, why, and what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        yield
    except (HTTPError, HFValidationError, OSError, RuntimeError, ValueError) as error:
        # The hub's library wraps what went wrong while it sends a file, or why it looked for a copy kept here.
        wrapped = type(error) is RuntimeError or isinstance(error, LocalEntryNotFoundError)
        cause = error.__cause__ if wrapped and error.__cause__ else error
        status = cause.response.status_code if isinstance(cause, HfHubHTTPError) else None
        refused = isinstance(cause, PermissionError) and cause.filename is None  # hf_xet's; one of a file has its name
        if status == 401 or (status is None and refused):
            why = "it does not know you (401); log in with `hf auth login`, or set HF_TOKEN, and run again"
        elif status == 403:
            why = "your token may not do this (403); use one that may write there, with `hf auth login` or HF_TOKEN"
        elif isinstance(cause, OfflineModeIsEnabled):
            why = "HF_HUB_OFFLINE is set; unset it and run again"
        elif isinstance(cause, HTTPError | ConnectionError) and status is None:
            why = f"the connection to {constants.ENDPOINT} failed ({_first_line(cause)}); run again"
        else:
            why = _first_line(cause)
        raise InputError(f"{what}: {why}") from None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

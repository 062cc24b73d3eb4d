"""Find models and data sets in a folder or on the Hugging Face hub; upload files to the hub."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ballcast.core.errors import InputError, first_line
from ballcast.core.files import working_folder

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

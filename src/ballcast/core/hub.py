"""The hub: what a name stands for, and putting a folder there. huggingface_hub is touched only when it is needed."""

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ballcast.core.errors import InputError

SNBAA = "SoccerNet/ActionAnticipation"  # the challenge's data set
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def locate(source: Path | str, files: Sequence[str], also: Sequence[str] = ()) -> Path:
    """The folder `source` names: itself if it exists, else the `files` of the hub's copy of it, downloaded.

    `also`: files to fetch if they are there.
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
    from huggingface_hub.errors import HFValidationError, HTTPError

    try:
        return Path(snapshot_download(str(source), allow_patterns=[*files, *also]))
    except (HTTPError, HFValidationError, OSError) as error:
        raise InputError(f"{source}: no such folder, and not to be had from the hub: {_first_line(error)}") from None


def push(repo_id: str, write: Callable[[Path], None], *, private: bool) -> str:
    """Upload what `write` puts into a folder; returns the repository's address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, HTTPError

    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary))
        try:
            api = HfApi()
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=temporary, commit_message="from ballcast")
        except (HTTPError, HFValidationError, OSError) as error:
            raise InputError(f"{repo_id}: cannot upload to the hub: {_first_line(error)}") from None
    return str(address)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

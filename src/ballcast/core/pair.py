"""Weights and the config that describes them: two files that are only right together.

They are replaced one after the other, since no file system renames two files at once. So the config tells the hash of
its weights, and whoever reads a new file beside an old one, as a kill between the two renames leaves them, is told.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from ballcast.core.files import write_together

KEY = "weights_sha256"  # in the config; files from before it was written there have none


def write_pair(folder: Path, weights_name: str, weights: bytes, config_name: str, config: dict[str, Any]) -> None:
    """Write both files into `folder`, the config as JSON with the hash of the weights in it."""
    told = {**config, KEY: hashlib.sha256(weights).hexdigest()}
    text = json.dumps(told, indent=1, allow_nan=False).encode() + b"\n"
    write_together({folder / weights_name: weights, folder / config_name: text})


def check_pair(weights_path: Path, weights: bytes, config_path: Path, config: dict[str, Any]) -> None:
    """An InputError if `config`, as read, was written for other weights."""
    if config.get(KEY) not in (None, hashlib.sha256(weights).hexdigest()):
        raise InputError(
            f"{weights_path}: is not what {config_path.name} beside it was written for; one of the two was replaced or "
            "saving was stopped between them, so save or fetch both again"
        )

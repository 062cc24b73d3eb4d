"""The game's engine, which is built apart from ballcast: see docs/backbone.md, "More matches of your own"."""

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError

NAME = "gfootball_engine"


def load_engine(folder: Path | None = None) -> Any:
    """The module `gfootball_engine`, looked for in `folder` first, then wherever Python looks.

    `folder` is the one that holds gfootball_engine/, not that folder itself.
    """
    if folder is not None and not (folder / NAME / "__init__.py").is_file():
        raise InputError(f"{folder}: has no {NAME}/ in it; give the folder that holds {NAME}/ as --engine")
    if folder is not None and str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    logging.disable(logging.WARNING)  # a failed import also logs four lines on how to build it
    try:
        return importlib.import_module(NAME)
    except ImportError as error:
        raise InputError(
            f"Google Research Football's engine cannot be imported ({error}): build it as in docs/backbone.md, for "
            f"this Python, and give the folder that holds {NAME}/ as --engine"
        ) from None
    finally:
        logging.disable(logging.NOTSET)

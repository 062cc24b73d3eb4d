"""The game's engine, which `python -m tools.simulate build` builds: see docs/backbone.md."""

import argparse
import importlib
import logging
import os
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
            f"Google Research Football's engine cannot be imported ({error}): build it with `python -m "
            f"tools.simulate build FOLDER` (docs/backbone.md), and give the folder that holds {NAME}/ as --engine"
        ) from None
    finally:
        logging.disable(logging.NOTSET)


def find_engine(folder: Path | None = None) -> Path:
    """The folder that holds gfootball_engine/, once it is sure that the engine can be loaded from there."""
    return Path(load_engine(folder).__file__).resolve().parents[1]


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """Add `--engine`, by default the folder that BALLCAST_ENGINE names."""
    engine = os.environ.get("BALLCAST_ENGINE") or None
    parser.add_argument("--engine", type=Path, default=engine, metavar="FOLDER", help=f"holds {NAME}/")

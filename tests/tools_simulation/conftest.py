"""What several tests of films share: a folder with a stand-in for the engine, and the folder of the real one."""

import os
from pathlib import Path

import pytest
from tools_simulation.stand_in import write_engine

from tools.simulation.engine import NAME


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that can be given as --engine."""
    return write_engine(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="session")
def engine() -> Path:
    """The folder of the real engine, which BALLCAST_ENGINE names."""
    named = os.environ.get("BALLCAST_ENGINE")
    if not named or not (Path(named) / NAME).is_dir():
        pytest.skip("BALLCAST_ENGINE names no folder with gfootball_engine/")
    return Path(named)

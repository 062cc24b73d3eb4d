"""Build the game's engine with the changes that films need: no name tags, no radar, a television camera.

    python -m tools.simulate build FOLDER

FOLDER/engine is what --engine takes. gfootball 2.10.2's source comes from PyPI, unless FOLDER/gfootball-2.10.2.tar.gz
is there; it is patched with tools/simulation/engine.patch and built in about seven minutes of two cores. On Debian 12
with its Python, or another Python 3.11, these packages must be installed:

    apt install cmake ninja-build patch binutils libgl1-mesa-dev libegl1-mesa-dev libgl1-mesa-dri libsdl2-dev \\
        libsdl2-image-dev libsdl2-ttf-dev libsdl2-gfx-dev libboost-python-dev libboost-thread-dev \\
        libboost-system-dev libboost-filesystem-dev
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ballcast.core.errors import InputError
from tools.simulation.engine import NAME

SOURCE = "gfootball-2.10.2"
SOURCE_SHA256 = "1b0fdcfa78b7fadc3730585ee7f0f412ba825c27e422b2b85ea0cf7ba57800b6"
PATCH = Path(__file__).parent / "engine.patch"
LOG = "build.log"
TOOLS = ("cmake", "ninja", "patch")


def build_engine(folder: Path) -> Path:
    """Build the engine in `folder`; returns the folder that holds gfootball_engine/."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise InputError(
            f"{' and '.join(missing)} must be installed to build the engine: `python -m tools.simulate build --help` "
            "lists the packages"
        )
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).write_text("")
    source = unpack_source(folder)
    _run(folder, "patch", "-d", str(source), "-p1", "-i", str(PATCH))
    project = source / "third_party" / NAME
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DPython_ROOT_DIR={sys.base_prefix}"]
    _run(folder, "cmake", "-S", str(project), "-B", str(build), *options)
    _run(folder, "cmake", "--build", str(build))
    return install(project, source / "third_party" / "fonts", build / "libgame.so", folder / "engine")


def unpack_source(folder: Path) -> Path:
    """Fetch gfootball's source if it is not there, check it, and unpack it; returns its folder."""
    archive = folder / f"{SOURCE}.tar.gz"
    if not archive.exists():
        name, version = SOURCE.split("-")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
        _run(folder, *pip, f"{name}=={version}", advice=f"; or put {archive.name} from PyPI into {folder}")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SOURCE_SHA256:
        raise InputError(f"{archive}: is not gfootball 2.10.2 as on PyPI; remove it and run again")
    shutil.rmtree(folder / SOURCE, ignore_errors=True)
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    return folder / SOURCE


def install(project: Path, fonts: Path, library: Path, engine: Path) -> Path:
    """Put together the Python package of the engine in the folder `engine`."""
    new = engine.with_name("engine.new")
    shutil.rmtree(new, ignore_errors=True)
    package = new / NAME
    shutil.copytree(project / "data", package / "data")
    shutil.copytree(fonts, package / "fonts")
    shutil.copy(project / "__init__.py", package)
    shutil.copy(library, package / "_gameplayfootball.so")
    if shutil.which("strip"):
        subprocess.run(["strip", package / "_gameplayfootball.so"], check=True)
    shutil.rmtree(engine, ignore_errors=True)
    os.replace(new, engine)
    return engine


def _run(folder: Path, *command: str, advice: str = "") -> None:
    """Run a command with its output in the log."""
    log = folder / LOG
    with log.open("a") as file:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        raise InputError(f"{Path(command[0]).name} failed; {log} says why{advice}")


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="to build in; takes 600 MB")
    engine = build_engine(parser.parse_args(words).folder)
    print(f"built; give --engine {engine}")  # noqa: T201

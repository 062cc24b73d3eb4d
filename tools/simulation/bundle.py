"""Put the engine, a Python, NumPy, Pillow and this code into one archive, which films on a machine without any of them.

    python -m tools.simulate bundle films.tar.xz --engine FOLDER

The other machine needs Linux with a C library as new as this one's, and an NVIDIA driver (libEGL_nvidia.so.0), which
draws. There, one command films matches as arrays, several at a time:

    tar xJf films.tar.xz && films/film OUT 6001-6032
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ballcast.core.errors import InputError
from tools.simulation.crew import ROOT
from tools.simulation.engine import NAME, add_engine_option, find_engine
from tools.simulation.partial_files import completing

FOLDER = "films"  # that the archive unpacks to
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# What films never import. Without OpenSSL, hashlib has hashes of its own.
SKIPPED = re.compile(
    r"^(asyncio|config-3.*|distutils|ensurepip|f2py|idlelib|lib2to3|pydoc_data|site-packages|sqlite3|tests?|tkinter"
    r"|turtledemo|unittest|__pycache__)$|_codecs_|_hashlib|_simd|_sqlite|_ssl|_test|_tkinter|\.(a|pyc|pyi)$"
)
# These stay behind: the C library and the C++ library are those of the machine, as its driver needs them.
SYSTEM_LIBRARIES = re.compile(r"/(ld-linux|lib(c|m|pthread|dl|rt|resolv|stdc\+\+|gcc_s|crypto|ssl)[.-])")
LAUNCHER = f"""#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONHOME="$here/python" PYTHONPATH="$here/site:$here/src" PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$here/lib:$here/python/lib:/usr/local/nvidia/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/python/bin/{PYTHON}" -s -m tools.simulation.bundled --engine "$here/engine" "$@"
"""
# Prints the files that the code of films, NumPy, Pillow and the engine load.
LOADED = """
import json, re, sys
import tools.simulation.bundled, tools.simulation.film
import numpy.random, PIL.BmpImagePlugin, PIL._imagingft
from pathlib import Path
from tools.simulation.engine import load_engine
load_engine(Path(sys.argv[1]))
modules = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] in ("ballcast", "tools") and m.__file__]
libraries = sorted(set(re.findall(r"/\\S+\\.so\\S*", Path("/proc/self/maps").read_text())))
packages = {name: str(Path(sys.modules[name].__file__).parent) for name in ("numpy", "PIL", "ballcast")}
print(json.dumps({"modules": modules, "libraries": libraries, "packages": packages}))
"""


def make_bundle(archive: Path, engine: Path) -> None:
    """Write the archive."""
    loaded = _loaded(engine)
    libraries = [Path(path) for path in loaded["libraries"]]
    packages = {name: Path(path) for name, path in loaded["packages"].items()}
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch) / FOLDER
        _copy_python(top / "python")
        for name in ("numpy", "PIL"):
            _copy_package(packages[name], libraries, top / "site")
        _copy_sources([Path(path) for path in loaded["modules"]], packages["ballcast"], top / "src")
        shutil.copytree(engine / NAME, top / "engine" / NAME, ignore=shutil.ignore_patterns("__pycache__"))
        copied = [Path(sys.base_prefix), *packages.values(), engine]
        _copy_libraries([path for path in libraries if not any(map(path.is_relative_to, copied))], top)
        launcher = top / "film"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with completing(archive) as partial, tarfile.open(partial, "w:xz", preset=6) as tar:
            tar.add(top, FOLDER)


def _loaded(engine: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", LOADED, str(engine)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise InputError("the code of films cannot be imported; the error is above")
    return json.loads(done.stdout.splitlines()[-1])


def _copy_python(target: Path) -> None:
    prefix = Path(sys.base_prefix)
    (target / "bin").mkdir(parents=True)
    (target / "lib").mkdir()
    shutil.copy(prefix / "bin" / PYTHON, target / "bin")
    library = prefix / "lib" / f"lib{PYTHON}.so.1.0"
    if library.exists():
        shutil.copy(library, target / "lib")
    shutil.copytree(prefix / "lib" / PYTHON, target / "lib" / PYTHON, ignore=_skipped)
    for binary in (target / "bin" / PYTHON, *target.rglob("*.so*")):
        binary.chmod(0o755)
        subprocess.run(["strip", binary], check=True)


def _copy_package(package: Path, libraries: Sequence[Path], site: Path) -> None:
    """Copy a package without the extension modules that are not loaded."""
    loaded = {path.name for path in libraries}

    def skipped(folder: str, names: list[str]) -> set[str]:
        return _skipped(folder, names) | {name for name in names if name.endswith(".so") and name not in loaded}

    shutil.copytree(package, site / package.name, ignore=skipped)


def _copy_sources(modules: Sequence[Path], ballcast: Path, target: Path) -> None:
    """Copy the modules of ballcast and tools that are used, and the shaders."""
    for path in [*modules, *(ROOT / "tools" / "simulation" / "shaders").iterdir()]:
        root = ballcast.parent if path.is_relative_to(ballcast) else ROOT
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _copy_libraries(libraries: Sequence[Path], top: Path) -> None:
    """Copy libraries: those of wheels beside their packages, others under the names by which they are looked for."""
    (top / "lib").mkdir()
    for path in libraries:
        if path.parent.suffix == ".libs":
            (top / "site" / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, top / "site" / path.parent.name)
        elif not SYSTEM_LIBRARIES.search(str(path)):
            shutil.copy(path, top / "lib" / _soname(path))


def _soname(library: Path) -> str:
    headers = subprocess.run(["objdump", "-p", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"SONAME\s+(\S+)", headers)
    return found[1] if found else library.name


def _skipped(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if SKIPPED.search(name)}


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate bundle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="to write, such as films.tar.xz")
    add_engine_option(parser)
    options = parser.parse_args(words)
    make_bundle(options.archive, find_engine(options.engine))
    print(f"{options.archive}: {options.archive.stat().st_size / 1e6:.1f} MB")  # noqa: T201

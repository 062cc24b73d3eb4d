"""Run ballcast in a process where some packages cannot be imported, as if they were not installed."""

import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "timm", "tensorboard", "matplotlib", "onnx", "torchvision")  # what extras bring

# Imports fail, and so does asking whether the packages are there.
WITHOUT = """
import sys
from importlib.machinery import PathFinder
missing, found = {missing!r}, PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else found(name, path, target)
PathFinder.find_spec = find_spec
"""
MAIN = "from ballcast.cli import main\nmain(sys.argv[1:])\n"


def python_without(
    missing: tuple[str, ...], code: str, *args: object, cwd: Path, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run Python code."""
    command = [sys.executable, "-c", WITHOUT.format(missing=missing) + code, *map(str, args)]
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=timeout)


def ballcast_without(missing: tuple[str, ...], *args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ballcast."""
    return python_without(missing, MAIN, *args, cwd=cwd)

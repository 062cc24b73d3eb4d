"""Run a module where packages are missing that it imports and never calls.

    python -m tools.bare tools.train_films FILMS OUT --seconds 600

Training on arrays decodes no video and draws no table, but what it imports does. Where PyAV, jinja2, rich, typer,
psutil or pyzipper are missing, names stand in for them, and calling one is an error.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
import types
from collections.abc import Sequence
from typing import Any

PACKAGES = ("av", "jinja2", "psutil", "pyzipper", "rich", "typer")


class _Missing(Exception):
    """Stands for whatever a missing package holds."""


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = _attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _attribute(name: str) -> Any:
    if name == "__version__":
        return "18.0.0"
    if name.startswith("__"):
        raise AttributeError(name)
    return set() if name.endswith("_available") else type(name, (_Missing,), {})


class Finder(importlib.abc.MetaPathFinder):
    """Finds the packages that no other finder has found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.meta_path.append(Finder())
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

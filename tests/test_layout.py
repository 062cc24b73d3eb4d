"""The limits that keep the code readable: files a job enters, lengths of files and functions, number of modules."""

import ast
import statistics
from pathlib import Path

import pytest

from tools.walk import LIMITS, walk

SRC = Path(__file__).parents[1] / "src" / "ballcast"
FILES = sorted(SRC.rglob("*.py"))


def functions(path: Path) -> list[tuple[str, int]]:
    """Name and lines of every function, decorators and docstring included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, kinds):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.append((f"{path.relative_to(SRC)}:{node.name}", (node.end_lineno or first) - first + 1))
    return found


def test_no_file_is_over_350_lines() -> None:
    long = {str(path.relative_to(SRC)): n for path in FILES if (n := len(path.read_text().splitlines())) > 350}
    assert not long


def test_no_function_is_over_60_lines_and_the_median_is_under_12() -> None:
    lengths = dict(pair for path in FILES for pair in functions(path))
    assert not {name: n for name, n in lengths.items() if n > 60}
    assert statistics.median(lengths.values()) < 12


def test_there_are_at_most_205_modules() -> None:
    assert len([path for path in FILES if path.name != "__init__.py"]) <= 205


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return walk(tmp_path_factory.mktemp("walk"))


@pytest.mark.parametrize("job", LIMITS)
def test_a_job_enters_few_files(walked: dict[str, list[str]], job: str) -> None:
    assert 0 < len(walked[job]) <= LIMITS[job], walked[job]

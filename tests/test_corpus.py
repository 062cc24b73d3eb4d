"""Files that once made ballcast fall over, found by `python -m tools.fuzz`: each is a success or one sentence now."""

from pathlib import Path

import pytest
import torch

from tools.fuzzing.feeds import ProviderFeed
from tools.fuzzing.judge import judge
from tools.fuzzing.media import Stdin, Upload
from tools.fuzzing.target import Target
from tools.fuzzing.targets import TARGETS, corpus_files

FOUND = [
    pytest.param(sort, path, id=f"{sort.__name__}-{path.stem}")
    for sort in TARGETS
    for path in corpus_files(sort.__name__)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[type[Target], Target]:
    torch.set_num_threads(1)
    return {}


@pytest.mark.parametrize(("sort", "path"), FOUND)
def test_what_was_found_is_mended(
    sort: type[Target], path: Path, made: dict[type[Target], Target], tmp_path_factory: pytest.TempPathFactory
) -> None:
    _need(sort)
    if sort not in made:
        made[sort] = sort(tmp_path_factory.mktemp(sort.__name__))
    finding = judge(made[sort], path.read_bytes(), tmp_path_factory.mktemp("case"))
    assert finding is None, finding


@pytest.mark.parametrize("sort", [t for t in TARGETS if not issubclass(t, Stdin | Upload)], ids=lambda t: t.__name__)
def test_the_seeds_are_whole(sort: type[Target], tmp_path: Path) -> None:
    """A fuzzer that spoils files which were never read would find nothing: what it starts from goes through."""
    torch.set_num_threads(1)
    _need(sort)
    (tmp_path / "base").mkdir()
    target = sort(tmp_path / "base")
    assert target.seeds
    (tmp_path / "out").mkdir()
    path = tmp_path / f"case{target.suffix}"
    path.write_bytes(target.seeds[0])
    target.drive(path, tmp_path / "out")


def _need(sort: type[Target]) -> None:
    if sort.__name__ == "EventTable":
        pytest.importorskip("pyarrow")
    if sort.__name__ == "UploadedFeed" or issubclass(sort, ProviderFeed):
        pytest.importorskip("kloppy")


def test_a_fault_is_found(tmp_path: Path) -> None:
    class Faulty(Target):
        def drive(self, path: Path, out: Path) -> None:
            (out / ".x.0a.tmp").touch()
            if path.read_bytes() == b"bad":
                raise KeyError("x")

    target = Faulty(tmp_path)
    fell = judge(target, b"bad", tmp_path / "work")
    assert fell is not None
    assert fell.where.startswith("KeyError")
    left = judge(target, b"good", tmp_path / "work")
    assert left is not None
    assert "left behind" in left.what

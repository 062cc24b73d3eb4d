"""Weights and their config: a kill between the two renames is noticed, whoever reads them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.core.files import sweep, write_together
from ballcast.core.pair import KEY, check_pair, write_pair
from ballcast.core.recipe import HierarchyConfig, ModelConfig
from ballcast.features.backbone import Backbone, read_about
from ballcast.model.anticipator import Anticipator
from tests.features.conftest import small_backbone

SIZES = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}


def small_anticipator(seed: int) -> Anticipator:
    torch.manual_seed(seed)
    return Anticipator(ModelConfig(width=8, hierarchy=HierarchyConfig(**SIZES)), metadata={"epoch": seed}).eval()


def killed_at_rename(number: int, work: Callable[[], None]) -> None:
    """Do the work in a process that is killed right after its rename of this number."""
    if not (child := os.fork()):
        rename, done = os.replace, 0

        def replace(source: Path, target: Path) -> None:
            nonlocal done
            rename(source, target)
            done += 1
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace  # type: ignore[assignment]
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.parametrize("make", [small_backbone, small_anticipator])
def test_a_kill_between_the_renames_is_noticed(make: Callable[[int], Backbone | Anticipator], tmp_path: Path) -> None:
    torch.set_num_threads(1)
    old, new = make(0), make(1)
    old.save_pretrained(tmp_path)
    type(old).from_pretrained(tmp_path)
    killed_at_rename(1, lambda: new.save_pretrained(tmp_path))
    with pytest.raises(InputError, match=r"model\.safetensors: is not what config\.json beside it was written for"):
        type(old).from_pretrained(tmp_path)
    new.save_pretrained(tmp_path)  # the run goes on
    read = type(old).from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, read[key]) for key, value in new.state_dict().items())


def test_what_pretraining_needs_to_go_on_is_there_after_such_a_kill(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    first, second = small_backbone(0), small_backbone(1)
    first.metadata = second.metadata = {"trained_on": ["a"]}
    first.save_pretrained(tmp_path)
    killed_at_rename(1, lambda: second.save_pretrained(tmp_path))
    assert read_about(tmp_path)["metadata"] == {"trained_on": ["a"]}


def test_files_from_before_there_was_a_hash_are_read(tmp_path: Path) -> None:
    write_pair(tmp_path, "w", b"weights", "c.json", {"a": 1})
    check_pair(tmp_path / "w", b"others", tmp_path / "c.json", {"a": 1})
    with pytest.raises(InputError, match="was written for"):
        check_pair(tmp_path / "w", b"others", tmp_path / "c.json", {"a": 1, KEY: "0" * 64})


def test_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a part of its path is a file"):
        write_together({tmp_path / "a": b"new", tmp_path / "file" / "b": b"new"})
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a", "file"]


def test_what_kills_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    for name in (".state.0a1b2c3d.tmp", "best/.model.0a1b2c3d.tmp", "kept.tmp", ".kept"):
        (tmp_path / name).touch()
    (tmp_path / ".store.0a1b2c3d.tmp").mkdir()
    (tmp_path / ".store.0a1b2c3d.tmp" / "x").touch()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".kept", "best", "kept.tmp"]
    assert not list((tmp_path / "best").iterdir())

"""Files are whole or not there; what cannot be read is one sentence."""

import errno
from pathlib import Path

import pytest

from ballcast.core.errors import InputError, NoSpace
from ballcast.core.files import read_json, replacing, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"a": 1})
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"half {1 / 0}")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path, "results") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="the disk is full"), replacing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"videos": [', "ends too early"),
        (b"", "ends too early"),
        (b'{"videos": oops}', "line 1 column 12: the file is not valid JSON"),
        (b"\xff\xfe\x00", "byte 0: the labels are not UTF-8"),
        (b"[" * 100_000, "too deeply"),
    ],
)
def test_unreadable_json_names_the_place(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "Labels-ball.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_json(path, "labels")
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_target_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="part of its path is a file"):
        write_json(tmp_path / "file" / "x.json", {})

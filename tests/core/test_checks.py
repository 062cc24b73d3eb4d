"""A flipped bit is noticed wherever it is, and files of older versions are read."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from ballcast.core.checks import CHECKSUM_KEY, add_json_checksum, add_safetensors_checksum, check_hash, verify_checksum
from ballcast.core.errors import InputError
from ballcast.core.files import parse_json, read_json, write_json


def flips(raw: bytes) -> Iterator[bytes]:
    """The content with each of its bits flipped, one at a time."""
    for at in range(len(raw)):
        for bit in range(8):
            yield raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


@pytest.mark.parametrize("indent", [None, 1])
def test_every_flipped_bit_of_json_is_noticed(tmp_path: Path, indent: int | None) -> None:
    path, tree = tmp_path / "config.json", {"lr": 0.001, "sizes": [224, 398], "name": "ball"}
    write_json(path, tree, indent=indent, checksum=True)
    raw = path.read_bytes()
    assert CHECKSUM_KEY in json.loads(raw)
    assert read_json(path, "config") == tree
    for damaged in flips(raw):
        with pytest.raises(InputError, match=r"config\.json: "):
            parse_json(damaged, path, "config")


@pytest.mark.parametrize("metadata", [None, {"a": "1"}])
def test_every_flipped_bit_of_safetensors_is_noticed(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    tensors = {"features": np.arange(6, dtype=np.float16).reshape(2, 3)}
    raw = add_safetensors_checksum(save(tensors, metadata))
    assert np.array_equal(load(raw)["features"], tensors["features"])
    assert verify_checksum(raw, "x")
    for damaged in flips(raw):
        with pytest.raises(InputError, match=r"part\.safetensors: its checksum differs"):
            verify_checksum(damaged, "part.safetensors")


def test_files_without_a_checksum_are_read() -> None:
    assert parse_json(b'{"a": 1}', "x", "config") == {"a": 1}
    assert not verify_checksum(save({"features": np.zeros(3)}), "x")
    assert not verify_checksum(b"", "x")
    check_hash(Path("not there"), "", "")


def test_an_edited_config_names_the_way_out() -> None:
    signed = add_json_checksum(b'{"threshold": 0.5}')
    with pytest.raises(InputError, match=f"if you edited it yourself, remove its key {CHECKSUM_KEY}"):
        parse_json(signed.replace(b"0.5", b"0.6"), "config.json", "config")
    assert parse_json(json.dumps(json.loads(signed)).encode(), "c", "config") == {"threshold": 0.5}  # written by a tool

"""`ballcast data verify` finds every damaged file below a folder."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.embedded import SAMPLES
from ballcast.core.errors import InputError
from ballcast.features.store import Header
from ballcast.features.store_writer import StoreWriter
from ballcast.training.checkpoint import Progress, save_state
from ballcast.workflows import verify as verification
from ballcast.workflows.verify import verify
from tests.features.conftest import small_backbone


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store, a backbone, a run's state and samples: all kinds of checksums."""
    torch.set_num_threads(1)
    writer = StoreWriter(tmp_path / "features" / "train", Header(BackboneIdentity("0" * 64, "b"), 3, 4))
    for clip in ("clip_1", "clip_2"):
        writer.add(clip, np.ones((6, 3, 4), np.float16), source=clip, size=1, mtime_ns=1)
    writer.finish()
    small_backbone(0).save_pretrained(tmp_path / "runs" / "best")
    model = nn.Linear(2, 2)
    save_state(tmp_path / "runs" / "state.safetensors", model, torch.optim.AdamW(model.parameters()), Progress())
    np.savez(tmp_path / "features" / "windows.npz", a=np.arange(100))
    return tmp_path


def test_every_file_is_verified_and_damage_is_named(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = verify(folder, lambda done, total: seen.append((done, total)))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert (found.whole, found.unknown, found.damaged) == (len(files), 0, ())
    assert seen[-1] == (sum(path.stat().st_size for path in files),) * 2
    for path in files:
        raw = path.read_bytes()
        middle = len(raw) // 2
        path.write_bytes(raw[:middle] + bytes([raw[middle] ^ 4]) + raw[middle + 1 :])
        damaged = verify(folder).damaged
        path.write_bytes(raw)
        assert any(sentence.startswith(f"{path}: ") for sentence in damaged), path
    (folder / "features" / "train" / "shard-00000.safetensors").unlink()
    assert [s.partition(": ")[2] for s in verify(folder).damaged] == ["is missing; make or fetch it again"]


def test_a_file_that_cannot_be_read_does_not_end_the_verification(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, *_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = verify(folder)
    monkeypatch.setattr(verification, "check_hash", broken)
    after = verify(folder)
    assert after.damaged
    assert all("cannot be read: Input/output error" in sentence for sentence in after.damaged)
    assert after.whole + len(after.damaged) == before.whole


def test_the_command_exits_with_2_if_anything_is_damaged(folder: Path) -> None:
    runner = CliRunner()
    good = runner.invoke(app, ["data", "verify", str(folder)])
    assert good.exit_code == 0, good.output
    assert "6 file(s) whole, 0 damaged" in good.output
    state = folder / "runs" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"\xff")
    bad = runner.invoke(app, ["data", "verify", str(folder)])
    assert bad.exit_code == 2
    assert f"{state}: its checksum differs" in bad.output.replace("\n", "")


def test_what_came_before_checksums_is_counted_and_not_judged() -> None:
    found = verify(SAMPLES)
    assert not found.damaged
    assert found.unknown


def test_a_folder_without_such_files_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not there"):
        with pytest.raises(InputError, match="give one of stores, runs, models or exports"):
            verify(path)

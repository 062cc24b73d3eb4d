"""`ballcast events --split` that was killed between two splits goes on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.data.events import event_grid, wyscout
from ballcast.data.events.event_grid import IDENTITIES
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import StoreWriter


def test_it_goes_on_with_the_next_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, out = tmp_path / "t.parquet", tmp_path / "stores"
    table.write_bytes(b"table")
    made: list[str] = []
    killed_at = "valid"

    def write_store(folder: Path, *_: Any, **__: Any) -> FeatureStore:
        if folder.name == killed_at:
            raise SystemExit(137)
        made.append(folder.name)
        writer = StoreWriter(folder, Header(IDENTITIES["plain"], 33, 18))
        writer.add("1", np.zeros((6, 33, 18), np.float16), source="", size=0, mtime_ns=0)
        return writer.finish()

    monkeypatch.setattr(wyscout, "read_table", lambda _: None)
    monkeypatch.setattr(event_grid, "split_matches", lambda *_: {"train": [1], "valid": [1], "test": [1]})
    monkeypatch.setattr(event_grid, "write_store", write_store)
    command = ["events", str(table), str(out), "--split", "small"]
    assert CliRunner().invoke(app, command).exit_code == 137
    other = CliRunner().invoke(app, [*command, "--detail", "rich"])
    assert "was begun with another table or other options" in str(other.exception)
    killed_at = ""
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.exception
    assert made == ["train", "valid", "test"]  # each once
    assert sorted(path.name for path in out.iterdir()) == ["test", "train", "valid"]
    again = CliRunner().invoke(app, command)
    assert "train: is there already" in str(again.exception)

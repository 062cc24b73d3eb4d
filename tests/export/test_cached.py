"""Trained models run in ONNX Runtime by themselves where there is no GPU: exported once, into the cache."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ballcast
from ballcast.core.errors import MissingExtra, NoSpace
from ballcast.export import cached
from ballcast.export.export import export
from ballcast.inference.export_config import export_key, find_export
from tests.export.test_export import make
from tests.video.conftest import make_video


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_video(tmp_path_factory.mktemp("video") / "v.mp4", range(200), size=(40, 72))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BALLCAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ballcast.inference.loading._may_have_gpu", lambda: False)
    return tmp_path / "cache" / "exports"


def predict(ballcast: Callable, cache: Path, video: Path, names: tuple[str, str], *options: str) -> tuple[dict, str]:
    """The timeline of `predict` in a fresh process, and what it said."""
    env = {"BALLCAST_CACHE": str(cache.parent), "CUDA_VISIBLE_DEVICES": ""}
    model, backbone = names
    out = cache.parent.parent / "timeline.json"
    out.unlink(missing_ok=True)
    given = ("--model", model, "--backbone", backbone, "--any-video", "--out", out)
    done = ballcast("predict", video, *given, *options, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stderr


def test_a_trained_model_is_exported_once(ballcast: Callable, cache: Path, video: Path, tmp_path: Path) -> None:
    names = make(tmp_path)
    first, said = predict(ballcast, cache, video, names)
    (folder,) = cache.iterdir()
    assert f"was exported to {folder}, for ONNX Runtime; --runtime torch does without" in said
    assert first["runtime"] == "onnx fp32"
    assert first["model"] == names[0]
    made = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again, said = predict(ballcast, cache, video, names)
    assert "exported" not in said
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == made
    torch, said = predict(ballcast, cache, video, names, "--runtime", "torch")
    assert "exported" not in said
    assert "runtime" not in torch
    for ours, theirs in zip(first["anticipations"], torch["anticipations"], strict=True):
        assert [p["label"] for p in ours["predictions"]] == [p["label"] for p in theirs["predictions"]]


def test_an_export_beside_the_model_is_used_if_it_is_of_it(cache: Path, video: Path, tmp_path: Path) -> None:
    names = make(tmp_path)
    assert ballcast.load(names[0], backbone=names[1]).runtime == "cpu"  # from Python nothing is exported by itself
    export(*names, tmp_path / "exported", video=video)
    loaded = ballcast.load(names[0], backbone=names[1])
    assert (loaded.runtime, loaded.name) == ("onnx", names[0])
    assert ballcast.load(names[0], backbone=names[1], runtime="torch").runtime == "cpu"
    assert not cache.exists()
    (tmp_path / "model" / "precision.json").write_text("{}")  # says how often it is right, and changes nothing
    assert find_export(*names) == tmp_path / "exported"

    config = tmp_path / "model" / "config.json"
    before = config.read_bytes()
    config.write_bytes(before + b"\n")  # as after `ballcast tune`
    assert find_export(*names) is None
    config.write_bytes(before)
    assert find_export(*names) == tmp_path / "exported"
    (tmp_path / "exported" / "slots.onnx").write_bytes(b"damaged")
    assert find_export(*names) is None


def test_other_weights_have_other_keys(tmp_path: Path) -> None:
    names, other = make(tmp_path / "a"), make(tmp_path / "b", slots=3)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    copy = str(tmp_path / "copy" / "model"), str(tmp_path / "copy" / "backbone")
    assert export_key(*names) == export_key(*copy) != export_key(*other)
    assert export_key(names[0], "someone/backbone") == ""


def test_what_cannot_be_exported_runs_in_torch(
    cache: Path, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ballcast.cli.runtime import load_model
    from ballcast.core.errors import BallcastWarning, InputError

    names, tried = make(tmp_path), []

    def refuse(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise InputError("its network pads by size")

    monkeypatch.setattr(cached, "export", refuse)
    for _ in range(2):
        with pytest.warns(
            BallcastWarning, match="runs in torch, since it cannot be exported: its network pads by size"
        ):
            assert load_model("auto", *names, "auto", "predict").runtime == "cpu"
    assert len(tried) == 1  # the second time it is known


def test_what_lacks_on_this_machine_is_not_held_against_the_model(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(error: Exception) -> Callable[..., None]:
        def export(*_: object, **__: object) -> None:
            raise error

        return export

    names = make(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(cached, "export", refuse(NoSpace("the disk is full")))
        with pytest.raises(NoSpace):  # not in torch, whose forecasts differ in their last digits
            cached.export_once(*names)
        patched.setattr(cached, "export", refuse(MissingExtra("onnx", "train")))
        folder, why = cached.export_once(*names)
        assert folder is None
        assert "onnx" in why
    folder, why = cached.export_once(*names)  # tried again
    assert folder is not None
    assert (folder, why) == (find_export(*names), "")
    made = (folder / "config.json").stat().st_ino
    assert cached.export_once(*names) == (folder, "")  # as after another process: kept, not made again
    assert (folder / "config.json").stat().st_ino == made


def test_the_cache_keeps_the_newest(cache: Path) -> None:
    for i in range(10):
        (cache / f"{i:032x}").mkdir(parents=True)
        os.utime(cache / f"{i:032x}", (i, i))
    cached._prune(cache)
    assert sorted(path.name for path in cache.iterdir()) == [f"{i:032x}" for i in range(2, 10)]


def test_a_damaged_export_in_the_cache_is_made_again(cache: Path, tmp_path: Path) -> None:
    names = make(tmp_path)
    folder, _ = cached.export_once(*names)
    assert folder is not None
    config = folder / "config.json"
    raw = config.read_bytes()
    config.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    assert find_export(*names) is None
    assert cached.export_once(*names) == (folder, "")
    assert find_export(*names) == folder
    assert os.listdir(cache) == [folder.name]

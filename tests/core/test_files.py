"""Files are whole or not there; what cannot be read is one sentence."""

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ballcast.core import files
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.core.checks import KEY, check_pair
from ballcast.core.errors import InputError, NoSpace
from ballcast.core.files import (
    check_not_source,
    check_writable,
    exclusive_lock,
    read_json,
    replacing,
    sweep,
    write_bytes,
    write_json,
    write_pair,
    write_together,
)
from ballcast.features.backbone import Backbone, read_about
from ballcast.model.anticipator import Anticipator
from tests.features.conftest import small_backbone


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


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="is a folder; give the path of the labels file"):
        read_json(tmp_path, "labels")

    def broken(path: Path, *_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(InputError, match=r"x\.json: cannot read the labels: Input/output error"):
        read_json(tmp_path / "x.json", "labels")


def test_a_target_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="part of its path is a file"):
        write_json(tmp_path / "file" / "x.json", {})


def test_a_probe_tells_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("old")
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new" / "deep" / "x.json")
    with pytest.raises(InputError, match="part of its path is a file"):
        check_writable(tmp_path / "file" / "x.json")
    with pytest.raises(InputError, match="File name too long"):
        check_writable(tmp_path / "new" / ("n" * 250))
    with pytest.raises(InputError, match="File name too long"):
        check_writable(tmp_path / "new" / ("n" * 300) / "x.json")

    def denied(path: Path, *_: object) -> None:  # a read-only folder; root, who runs some tests, may write to any
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", denied)
    with pytest.raises(InputError, match=r"x\.json: cannot be written: Permission denied$"):
        check_writable(tmp_path / "new" / "x.json")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("target", [".", "/", ""])
def test_a_target_without_a_name_is_refused(target: str) -> None:
    with pytest.raises(InputError, match="names no file or folder"):
        write_json(Path(target), {})


def test_what_cannot_be_written_is_named_by_its_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder: cannot be written: Is a directory$") as caught:
        write_json(tmp_path / "folder", {})
    assert ".tmp" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]

    def read_only(path: Path, *_: object, **__: object) -> None:  # as a disk mounted read-only answers, to removing too
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "write_bytes", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(InputError, match=r"x\.json: cannot be written: Read-only file system$") as caught:
        write_json(tmp_path / "x.json", {})
    assert ".tmp" not in str(caught.value)
    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(InputError, match=r"x\.json: cannot be written: Read-only file system$"):
        write_json(tmp_path / "new" / "x.json", {})


def test_a_file_in_a_folder_to_be_is_named_as_it_would_be(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with replacing(folder) as made, replacing(made / "a.bin"):
            raise OSError(errno.ENOSPC, "No space left on device")

    def misplace(folder: Path) -> None:
        with replacing(folder) as made:
            (made / "a.bin").mkdir(parents=True)
            write_json(made / "a.bin", {})

    for work, words in ((fill, "the disk is full"), (misplace, "cannot be written: Is a directory")):
        with pytest.raises((NoSpace, InputError), match=rf"/store/a\.bin: {words}") as caught:
            work(tmp_path / "store")
        assert ".tmp" not in str(caught.value)
        assert not list(tmp_path.iterdir())


def test_errors_of_other_files_within_the_block_stay_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "copy"):
        (tmp_path / "source").read_bytes()


def test_a_number_of_thousands_of_digits_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text("9" * 5000)
    with pytest.raises(InputError, match="a number is too long"):
        read_json(tmp_path / "l.json", "labels")


def test_the_file_that_is_read_is_not_written_to(tmp_path: Path) -> None:
    video, other = tmp_path / "video.ts", tmp_path / "other.ts"
    video.write_bytes(b"a match")
    other.write_bytes(b"a match")
    (tmp_path / "link.ts").symlink_to(video)
    (tmp_path / "hard.ts").hardlink_to(video)
    for name in ("video.ts", "link.ts", "hard.ts", "./video.ts"):
        with pytest.raises(InputError, match=f"{Path(name).name}: is the file that is read; write to another one"):
            check_not_source(tmp_path / name, video)
    for path, source in ((other, video), (tmp_path / "new", video), (other, "rtsp://camera/1"), (other, "a\0b")):
        check_not_source(path, source)
    check_not_source(Path(os.devnull), os.devnull)  # nothing is lost there


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
    with pytest.raises(InputError, match=r"model\.safetensors: does not belong to config\.json beside it"):
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
    with pytest.raises(InputError, match="does not belong to"):
        check_pair(tmp_path / "w", b"others", tmp_path / "c.json", {"a": 1, KEY: "0" * 64})


def test_folders_and_locks_on_a_full_disk_are_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(NoSpace, match=r"deep/er/x: the disk is full"):
        write_bytes(tmp_path / "deep" / "er" / "x", b"")
    monkeypatch.setattr("huggingface_hub.utils.WeakFileLock", fail)
    with pytest.raises(NoSpace, match=r"run: the disk is full"), exclusive_lock(tmp_path / "run", tmp_path / "l", ""):
        pass


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


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_folder_is_replaced_once_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    out = tmp_path / "export"
    out.mkdir()
    (out / "old.onnx").write_text("old")
    synced: list[str] = []
    monkeypatch.setattr("ballcast.core.files._sync", lambda path: synced.append(path.name))
    if not in_one_step:  # a system without such a call
        monkeypatch.setattr("ctypes.CDLL", lambda _: None)

    def fail() -> None:
        with replacing(out) as new:
            new.mkdir()
            (new / "new.onnx").write_text("half")
            assert contents(out) == {"old.onnx": "old"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert contents(tmp_path) == {"export/old.onnx": "old"}
    with replacing(out) as new:
        (new / "graphs").mkdir(parents=True)
        (new / "graphs" / "new.onnx").write_text("new")
    assert contents(tmp_path) == {"export/graphs/new.onnx": "new"}
    assert {"new.onnx", "graphs", tmp_path.name} <= set(synced)
    assert os.listdir(tmp_path) == ["export"]


def killed(work: Callable[[], None]) -> None:
    """Do the work, which ends in SIGKILL, in a process of its own."""
    if not (child := os.fork()):
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_next_write_removes_what_killed_processes_left(tmp_path: Path) -> None:
    def die() -> None:
        with replacing(tmp_path / "store") as folder, replacing(tmp_path / "overlay.mp4") as file:
            folder.mkdir()
            (folder / "shard").write_text("gigabytes")
            file.write_text("gigabytes")
            os.kill(os.getpid(), signal.SIGKILL)

    killed(die)
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".notes.tmp").touch()  # not ours
    foreign = tmp_path / ".report.00000000-1-0a1b2c3d.tmp"  # of another machine that shares the disk
    foreign.touch()
    files._swept.clear()
    with replacing(tmp_path / "report.json") as mine:
        mine.touch()
        files._swept.clear()
        write_json(tmp_path / "other.json", {})  # a temporary in use stays
        assert mine.exists()
    assert sorted(os.listdir(tmp_path)) == [".notes.tmp", foreign.name, "other.json", "report.json"]
    os.utime(foreign, (0, 0))
    files._swept.clear()
    write_json(tmp_path / "other.json", {})
    assert not foreign.exists()


def test_a_folder_moved_aside_by_a_killed_process_comes_back(tmp_path: Path) -> None:
    old = tmp_path / f".export.{files._machine()}-{2**22 + 1}-0a1b2c3d.old"  # no process has this number
    old.mkdir()
    (old / "a.onnx").write_text("whole")
    files._swept.clear()
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "export"):
        raise ZeroDivisionError
    assert contents(tmp_path) == {"export/a.onnx": "whole"}


def test_a_working_folder_is_removed_even_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def die() -> None:
        with files.working_folder() as folder:
            (folder / "x").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    killed(die)
    assert len(os.listdir(tmp_path)) == 1
    files._swept.clear()
    with files.working_folder():
        assert len(os.listdir(tmp_path)) == 1
    assert not os.listdir(tmp_path)


def test_a_folder_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: a power cut could leave a new folder of empty files in place of the old one."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    renamed: list[int] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (renamed.append(len(synced)), replace(*names)))
    with replacing(tmp_path / "export") as new:
        (new / "deep").mkdir(parents=True)
        for name in ("config.json", "deep/model.onnx"):
            (new / name).write_text("x")
    assert renamed == [4]  # two files, two folders
    assert {Path(path).name for path in synced[:4]} == {"config.json", "model.onnx", "deep", new.name}
    assert synced[4:] == [str(tmp_path)]  # and then the name itself

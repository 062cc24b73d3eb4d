"""What a user meets when something is wrong with the machine, or has had enough."""

import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

import ballcast.workflows.demo
from ballcast import cli
from ballcast.cli.shell import resumable
from ballcast.core.errors import InputError
from ballcast.inference import doctor
from ballcast.inference.doctor import Finding


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/data/x"), "ballcast: /data/x: Permission denied\n"),
        (OSError(24, "Too many open files"), "ballcast: the system: Too many open files\n"),
        (OSError(28, "No space left", "/data/x"), "ballcast: /data/x: the disk is full; free some and run again\n"),
        (InputError("a.mp4: is empty"), "ballcast: a.mp4: is empty\n"),
    ],
)
def test_what_can_be_mended_is_one_sentence(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == said


def test_what_cannot_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("a fault of ours")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="a fault of ours"):
        cli.main()


def test_ctrl_c_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, resumable():
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "ballcast: stopped; run the same command again to resume\n"


def test_doctor_fails_where_something_needed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "a-package-nobody-has"))
    done = CliRunner().invoke(cli.app, ["doctor"], env={"COLUMNS": "120"})
    assert done.exit_code == 1
    assert "pip install a-package-nobody-has" in done.output


def test_doctor_tells_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fix = "free some: stores and runs take GiBs"
    for free, ok, fixed in ((1 << 28, False, fix), (1 << 30, None, fix), (8 << 30, True, "")):
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        (found,) = (finding for finding in doctor.examine(tmp_path / "yet" / "to be") if finding.what == "disk")
        assert found == Finding("disk", ok, f"{free / 2**30:.1f} GiB free at {tmp_path}", fixed)


@pytest.mark.parametrize(("option", "shown"), [("--open", True), ("--no-open", False)])
def test_the_demos_report_is_shown_where_asked_for(
    option: str, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ballcast.workflows.demo, "run", lambda out, console, device: out / "report.html")
    done = CliRunner().invoke(cli.app, ["demo", option, "--out", str(tmp_path / "a b")])
    assert done.exit_code == 0, done.exception
    assert opened == ([(tmp_path / "a b" / "report.html").as_uri()] if shown else [])

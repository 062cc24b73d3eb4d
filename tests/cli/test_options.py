"""Options and what commands say: one that would do nothing is refused; names come out as they are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction
from ballcast.data.labels.soccernet import write_labels
from ballcast.inference.submission import write_submission


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict --features s --every 2", "--every goes with a VIDEO or --events, not with --features"),
        ("predict --features s --csv a.csv", "--csv goes with a VIDEO or --events, not with --features"),
        ("predict --features s --provider opta", "--provider goes with --events, not with --features"),
        ("predict a.mp4 --provider opta", "--provider goes with --events, not with a VIDEO"),
        ("predict a.mp4 --calibration c.json", "--calibration goes with --features, not with a VIDEO"),
        ("predict a.mp4 --model a --model b", "a second --model goes with --features, not with a VIDEO"),
        ("predict --events no.json --runtime onnx", "no.json: no such file; give a file of events"),
        ("predict --events m.json --labels l", "--labels goes with --features, not with --events"),
        ("predict --events m.json --overlay o.mp4", "--overlay goes with a VIDEO, not with --events"),
        ("events t.parquet out --split small --every 5", "--every does not go with --split"),
        ("submit a.json --check b.zip", "--check looks at one file and writes nothing"),
        ("submit --merge --check b.zip", "--check looks at one file and writes nothing"),
        ("submit --check b.zip", "--check needs --labels"),
        ("submit", "give the predictions to submit, for example: ballcast submit"),
        ("submit a.json b.json", "2 files of predictions; average them with --merge"),
        ("predict --features s", "predict needs a model: give --model"),
        ("tune a b --features s", "give the file to write with --out ensemble.json"),
        ("serve --stream pitch", "--stream 'pitch': give NAME=ADDRESS"),
        ("serve --stream a=- --port 0", "stdin cannot be opened twice"),
    ],
)
def test_options_that_do_not_go_together_are_refused(command: str, words: str) -> None:
    done = CliRunner().invoke(app, command.split())
    assert isinstance(done.exception, InputError), (done.output, done.exception)
    assert words in str(done.exception)


@pytest.mark.parametrize(("command", "default"), [("predict", "1"), ("events", "7")])
def test_defaults_that_are_filled_in_later_are_told(command: str, default: str) -> None:
    assert f"[default: ({default})]" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize("command", ["pretrain pretrain", "ablate paper"])
def test_what_is_one_process_does_not_start_with_torchrun(command: str) -> None:
    done = CliRunner().invoke(app, command.split(), env={"WORLD_SIZE": "2"})
    assert isinstance(done.exception, InputError)
    assert "start it without torchrun" in str(done.exception)


def test_a_folder_in_brackets_is_told_as_it_is(tmp_path: Path) -> None:
    """Brackets are mark-up to the library that prints tables."""
    folder = tmp_path / "[final] cut"
    write_labels(folder / "Labels-ball.json", [Clip("clip_1", anticipation=(Event("PASS", 31_000),))])
    write_submission(folder / "said.json", {"clip_1": [Prediction("PASS", 31_100, 0.5)]})
    options = ["--labels", str(folder / "Labels-ball.json"), "--predictions", str(folder / "said.json")]
    done = CliRunner().invoke(app, ["eval", *options, "--report", str(folder / "report.html")], env={"COLUMNS": "40"})
    assert done.exit_code == 0, done.exception
    assert f"wrote {folder / 'report.html'}\n" in done.output
    assert "…" not in done.output


def test_what_is_read_is_not_overwritten(tmp_path: Path) -> None:
    labels, said = tmp_path / "Labels-ball.json", tmp_path / "said.json"
    write_labels(labels, [Clip("clip_1", anticipation=(Event("PASS", 31_000),))])
    write_submission(said, {"clip_1": [Prediction("PASS", 31_100, 0.5)]})
    before = labels.read_bytes(), said.read_bytes()
    for command in (
        ["data", "convert", str(labels), str(labels)],
        ["eval", "--labels", str(labels), "--predictions", str(said), "--json", str(said)],
        ["eval", "--labels", str(tmp_path), "--predictions", str(said), "--report", str(labels)],
    ):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, InputError), done.output
        assert "is the file that is read" in str(done.exception)
    assert (labels.read_bytes(), said.read_bytes()) == before

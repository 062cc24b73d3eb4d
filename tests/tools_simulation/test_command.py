"""`python -m tools.simulate`: films what is missing, labels it, and says in a sentence what it lacks."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tools_simulation.stand_in import ENGINE
from tools_simulation.story import Story

from ballcast.data.labels.games import find_games, read_matches
from ballcast.video.file import VideoFile
from tools import simulate
from tools.simulation.broadcast import filming
from tools.simulation.films import write_labels
from tools.simulation.fixture import Fixture
from tools.simulation.partial_files import locking
from tools.simulation.seeds import SETS, TEST_SEEDS
from tools.simulation.states import write_states

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, stand_in: Path) -> Run:
    """Runs the command in this process and films in others, with a stand-in for an engine; gives its exit code."""
    monkeypatch.setattr(simulate, "load_engine", lambda folder: ENGINE)
    monkeypatch.setattr(simulate, "find_engine", lambda folder: stand_in)
    monkeypatch.delenv("BALLCAST_ENGINE", raising=False)

    def run(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["simulate", *map(str, words)])
        try:
            simulate.main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return 0

    return run


def keep(out: Path, name: str, story: Story) -> None:
    """A film that was made before, with its first picture and its last."""
    out.mkdir(exist_ok=True)
    with filming(out / f"{name}.mp4", crf=25) as add:
        for frame in (0, len(story.rows) - 1):
            add(np.full((224, 398, 3), 100, np.uint8), frame)
    write_states(out / f"{name}.npz", story.rows, story.hidden, Fixture.draw(1))


def a_pass() -> Story:
    return Story().held(0, 5, 10).free(20, (12, 0)).held(0, 7, 10)


def test_matches_are_filmed_and_can_be_learned_from(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "new" / "out"
    assert run(out, "--matches", 2, "--seed", 41, "--minutes", 0.0267, "--split", "valid", "--jobs", 2) == 0
    assert sorted(p.name for p in out.iterdir()) == [
        *("match_0041.mp4", "match_0041.npz", "match_0042.mp4", "match_0042.npz", "matches.json")
    ]
    assert "2 matches" in capsys.readouterr().out
    games = find_games(out)
    assert [(g.name, g.split) for g in games] == [("match_0041", "valid"), ("match_0042", "valid")]
    (segment,) = games[0].segments
    assert segment.stop == 40
    with VideoFile(segment.path) as video:
        assert video.read(0, 40).shape == (40, 224, 398)
    assert [(e.label, e.position_ms, e.team) for e in games[0].events] == [
        ("DRIVE", 3 * 40, "home"),  # before the cut, 20 steps with the ball
        ("PASS", 28 * 40, "home"),  # after it 9 more, then it rolls on alone
    ]


def test_arrays_for_training(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path, "--matches", 1, "--minutes", 0.0134, "--arrays") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["match_6001.npy", "match_6001.npz", "matches.json"]
    assert np.load(tmp_path / "match_6001.npy").shape == (11, 336 * 398)
    assert [(m.video, m.split, m.frames) for m in read_matches(tmp_path / "matches.json")] == [
        ("match_6001.npy", "train", 20)
    ]


def test_labels_are_written_as_simbaa_has_them(run: Run, tmp_path: Path) -> None:
    keep(tmp_path / "out", "match_5001", a_pass())
    assert run(tmp_path / "out", "--matches", 0) == 0
    assert json.loads((tmp_path / "out" / "matches.json").read_text()) == [
        {
            "video": "match_5001.mp4",
            "split": "train",
            "frames": 40,
            "actions": [{"label": "PASS", "position": 360, "team": "home", "visibility": "visible"}],
        }
    ]


def test_labelling_again_needs_no_engine_and_leaves_other_files_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    for name in ("match_10", "match_9"):
        keep(out, name, a_pass())
    np.savez(out / "match_9_scores.npz", s=np.zeros(3))
    (out / "match_11.mp4").write_bytes(b"its states are not there yet")
    (out / "matches.json").write_text("[]")
    monkeypatch.setattr(simulate, "load_engine", None)
    monkeypatch.setattr(simulate, "find_engine", None)
    assert run(out, "--matches", 0) == 0
    assert [m.video for m in read_matches(out / "matches.json")] == ["match_9.mp4", "match_10.mp4"]


def test_what_is_filmed_is_kept_and_what_was_broken_off_is_filmed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    out, words = tmp_path / "out", ("--matches", 3, "--seed", 1, "--minutes", 0.0134)
    monkeypatch.setenv("STAND_IN_TROUBLE", "2 interrupt")
    assert run(out, *words) == 130
    assert "resumes" in capsys.readouterr().err
    assert sorted(p.name for p in out.iterdir()) == ["match_0001.mp4", "match_0001.npz", "matches.json"]
    monkeypatch.delenv("STAND_IN_TROUBLE")
    first = (out / "match_0001.mp4").stat()
    (out / ".match_0002.mp4.tmp").write_bytes(b"left by one that was killed")
    (out / "match_0003.npz").write_bytes(b"its film is not there")
    assert run(out, *words) == 0
    assert "1 of 3 matches are filmed already" in capsys.readouterr().out
    assert (out / "match_0001.mp4").stat() == first
    assert len(list(out.iterdir())) == 7
    assert [m.frames for m in read_matches(out / "matches.json")] == [20, 20, 20]
    monkeypatch.setattr(simulate, "Crew", None)  # nothing is left to film
    assert run(out, *words) == 0


def test_a_match_that_fails_is_reported_and_skipped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("STAND_IN_TROUBLE", "2 die")
    with locking(tmp_path / "match_0001.mp4"):
        assert run(tmp_path, "--matches", 3, "--seed", 1, "--minutes", 0.0134) == 1
    output = capsys.readouterr()
    assert "match_0001.mp4: is being filmed by another process" in output.out
    assert "match_0002.mp4: its process was killed by signal 11; skipped" in output.out
    assert output.err == "simulate: 2 of 3 matches could not be filmed: 1, 2\n"
    assert [m.video for m in read_matches(tmp_path / "matches.json")] == ["match_0003.mp4"]


@pytest.mark.parametrize("given", [None, "empty", "broken"])
def test_without_an_engine_one_sentence_tells_what_to_do(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "gfootball_engine", None)  # as if it were nowhere
    monkeypatch.delenv("BALLCAST_ENGINE", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    if given:
        (tmp_path / "empty").mkdir()
        (tmp_path / "broken" / "gfootball_engine").mkdir(parents=True)
        (tmp_path / "broken" / "gfootball_engine" / "__init__.py").write_text("from _gameplayfootball import *")
        monkeypatch.setenv("BALLCAST_ENGINE", str(tmp_path / given))
    if given == "broken":
        monkeypatch.delitem(sys.modules, "gfootball_engine")
    monkeypatch.setattr(sys, "argv", ["simulate", str(tmp_path / "out"), "--matches", "1"])
    with pytest.raises(SystemExit) as ended:
        simulate.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simulate: ")
    assert "give the folder that holds gfootball_engine/ as --engine" in line
    assert {None: "tools.simulate build", "empty": "empty: has no", "broken": "_gameplayfootball"}[given] in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", "other keys", "other columns"])
def test_states_that_are_none_are_named(
    content: bytes | str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    keep(tmp_path, "match_1", a_pass())
    if isinstance(content, bytes):
        (tmp_path / "match_1.npz").write_bytes(content)
    else:
        rows = {"rows": np.zeros((5, 54)), "hidden": np.zeros(5)} if content == "other columns" else {"s": np.zeros(5)}
        np.savez(tmp_path / "match_1.npz", **rows)
    assert run(tmp_path, "--matches", 0) == 2
    assert "match_1.npz: these are no states of a match" in capsys.readouterr().err


def test_a_folder_without_films_and_numbers_out_of_range_are_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(tmp_path, "--matches", 0) == 2
    assert "has no films" in capsys.readouterr().err
    for words in (("--matches", -1), ("--every", 0), ("--every", 51), ("--minutes", 0), ("--seed", -1), ("--jobs", 0)):
        assert run(tmp_path, *words) == 2
        assert "must" in capsys.readouterr().err


def test_test_matches_are_never_in_another_split(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ("--matches", 2, "--seed", TEST_SEEDS[0] - 1, "--minutes", 0.01)
    assert run(tmp_path / "train", *words, "--split", "train") == 2
    assert "seed 7001 cannot be in the split train" in capsys.readouterr().err
    assert not (tmp_path / "train").exists()  # refused before anything is filmed
    assert run(tmp_path / "test", *words) == 0
    splits = {"match_7000.mp4": "train", "match_7001.mp4": "test"}
    assert {m.video: m.split for m in read_matches(tmp_path / "test" / "matches.json")} == splits
    assert run(tmp_path / "test", "--matches", 0, "--split", "train") == 2
    assert run(tmp_path / "test", "--matches", 0) == 0  # labelling again leaves the splits
    assert {m.video: m.split for m in read_matches(tmp_path / "test" / "matches.json")} == splits


def test_the_actions_are_shown_beside_those_of_others(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("match_1", "match_2"):
        keep(tmp_path / "theirs", name, a_pass())
    keep(tmp_path / "out", "match_1", Story().held(0, 5, 20).held(1, 3, 20).free(20, (12, 0)).held(1, 4, 9))
    write_labels(tmp_path / "theirs", sorted((tmp_path / "theirs").glob("*.mp4")), "train")
    assert run(tmp_path / "out", "--matches", 0, "--compare", tmp_path / "theirs") == 0
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["PASS", "1.0", "1.0"] in lines
    assert ["PLAYER SUCCESSFUL TACKLE", "0.0", "1.0"] in lines
    assert ["all", "1.0", "2.0"] in lines
    assert ["tackle, pass, same team", "0.0", "", "", "1.0", "0.8", "0.8"] in lines


def test_a_set_is_filmed_and_checked_by_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """What is checked is played without the film's look: states and labels are the same whatever the film."""
    monkeypatch.setattr(simulate, "MINUTES", 0.0267)  # 40 steps
    monkeypatch.setitem(SETS, "films-test", (TEST_SEEDS[:2], "test"))
    assert run(tmp_path, "--set", "films-test", "--check") == 2
    assert "has none of these matches" in capsys.readouterr().err
    assert run(tmp_path, "--set", "films-test", "--every", 1) == 0
    assert [(m.video, m.split) for m in read_matches(tmp_path / "matches.json")] == [
        ("match_7001.mp4", "test"),
        ("match_7002.mp4", "test"),
    ]
    assert run(tmp_path, "--set", "films-test", "--matches", 0) == 0
    assert run(tmp_path, "--set", "films-test", "--check") == 0
    assert capsys.readouterr().out.count("states and labels are the same") == 2
    changed = json.loads((tmp_path / "matches.json").read_text())
    changed[1]["actions"].pop()
    (tmp_path / "matches.json").write_text(json.dumps(changed))
    with np.load(tmp_path / "match_7001.npz") as kept:
        states = dict(kept)
    states["rows"][5, 0] += 1
    np.savez(tmp_path / "match_7001.npz", **states)
    assert run(tmp_path, "--set", "films-test", "--check") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["match_7001.mp4: states differ", "match_7002.mp4: labels differ"]


@pytest.mark.parametrize("words", [("--matches", 3), ("--seed", 5), ("--split", "train"), ("--minutes", 1)])
def test_a_set_has_its_own_numbers(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture, words: tuple[object, ...]
) -> None:
    assert run(tmp_path, "--set", "films-train", *words) == 2
    assert "--set has its own" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "bundle", "contacts"])
def test_other_commands_have_their_own_help(command: str, run: Run, capsys: pytest.CaptureFixture) -> None:
    assert run(command, "--help") == 0
    assert f"python -m tools.simulate {command}" in capsys.readouterr().out

"""The commands of a challenge entry: they are understood, their recipes load, and the hours are the arithmetic."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from docs.typed import parse
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.workflows.reproduce.entry import ENTRIES, Command, Rate, entry_lines, read_throughput

COMMANDS = [(name, command) for name, (_, build) in ENTRIES.items() for command in build("snbaa")]
UNMEASURED = {name: Rate("") for _, command in COMMANDS for name, _ in command.work}


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(COMMANDS)])
def test_every_command_is_understood(name: str, command: Command) -> None:
    program, *words = shlex.split(command.text)
    assert program == "ballcast"
    parse(words)
    if words[0] == "train":
        changes = [word for word in words[2:] if "=" in word]
        recipe = load(Recipe, Path(words[1]), changes)
        assert (recipe.train.backbone == "end_to_end") == (name != "paper")


@pytest.mark.parametrize("name", ENTRIES)
def test_what_a_command_reads_an_earlier_one_wrote(name: str) -> None:
    """Folders of runs and stores, in order."""
    written: set[str] = set()
    for words in (shlex.split(command.text) for of, command in COMMANDS if of == name):
        verb, outs = words[1], [w for option, w in pairwise(words) if option in ("--out", "--to")]
        new = {*outs, words[3] if verb == "extract" else "snbaa"}
        places = [part.removeprefix("encoder.start=").removeprefix("data.features=") for part in words[2:]]
        for place in (p for p in places if p.startswith(("runs/", "features/")) and p not in new):
            assert any(place.startswith(before) or before.startswith(place) for before in written), (words, place)
        written |= new


def test_the_hours_are_work_over_rate() -> None:
    """e2e: 30 epochs of 22 900 samples of 62 stacks; decoded are 5 s of each of 4587 + 1169 clips."""
    rates = {
        **UNMEASURED,
        "decode 224p": Rate("frames", 1000.0),
        "train e2e": Rate("stacks", 6000.0),
        "train e2e head": Rate("stacks", 200_000.0),
        "features e2e": Rate("seconds of video", 50.0),
        "extract e2e": Rate("seconds of video", 100.0),
    }
    _, train, head, valid, *_ = ENTRIES["e2e"][1]("snbaa")
    assert train.seconds(rates) == pytest.approx(30 * 22_900 * 62 / 6000 + 5756 * 125 / 1000)
    # 8 epochs; features of all frames twice
    assert head.seconds(rates) == pytest.approx(8 * 22_900 * 62 / 200_000 + 2 * 5756 * 5 / 50)
    assert valid.seconds(rates) == pytest.approx(1169 * 30 / 100)
    assert train.seconds(rates | {"decode 224p": Rate("frames")}) is None
    lines = list(entry_lines(["e2e"], rates=rates))
    assert lines[0].endswith("in all 3.1 h on one H200")
    assert lines[2].endswith(": 2.2 h on one H200")
    assert "in all not measured on one H200" in next(entry_lines(["e2e"], rates=UNMEASURED))


def test_the_rates_that_come_with_ballcast_are_named_as_the_commands_name_them() -> None:
    rates = read_throughput()
    assert set(rates) == set(UNMEASURED)
    assert all(rate.measured for rate in rates.values() if rate.h200)  # no invented figures


def test_a_damaged_rate_is_one_sentence(tmp_path: Path) -> None:
    write_json(tmp_path / "t.json", {"train e2e": {"unit": "stacks", "h200": 0}})
    with pytest.raises(InputError, match=r"t\.json: .*above 0, or null"):
        read_throughput(tmp_path / "t.json")


def test_the_command_lists_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "--recipes", "paper,faantra-ws,e2e"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [
        line.split(":")[0] for line in done.output.splitlines() if line.startswith(tuple(f"# {n}:" for n in ENTRIES))
    ] == [
        "# paper",
        "# faantra-ws",
        "# e2e",
    ]
    assert "encoder.start=runs/ws1-008/best" in done.output
    assert "not measured" not in done.output  # every rate has been measured
    listed = CliRunner().invoke(app, ["reproduce", "elsewhere", "--list", "--recipes", "e2e"], catch_exceptions=False)
    assert "games.sources=[elsewhere/224p]" in listed.output
    assert not list(tmp_path.iterdir())


def test_recipes_without_an_entry_or_a_row_are_one_sentence(tmp_path: Path) -> None:
    for words, message in (
        (["--recipes", "best"], "no entry with the recipe 'best'; choose from paper, faantra-ws, e2e"),
        (
            [str(tmp_path), "--recipes", "e2e"],
            "no model 'e2e' in the table; .*`ballcast reproduce --list --recipes e2e`",
        ),
    ):
        with pytest.raises(InputError, match=message):
            CliRunner().invoke(app, ["reproduce", *words], catch_exceptions=False)

"""Label sets: each layout with its own class list, and what is held out."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from games import draw_game, make_clips, make_matches, write_video

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import GamesConfig, PretrainRecipe
from ballcast.data.labels.games import find_games
from ballcast.data.labels.label_sets import (
    BALL_ACTIONS,
    BROADCAST_ACTIONS,
    LabelSet,
    choose_label_sets,
    read_label_set,
)
from ballcast.data.samples.frames import FrameCache


def record(label: str, position: int, half: int = 1) -> dict[str, str]:
    return {"gameTime": f"{half} - 00:12", "label": label, "position": str(position), "visibility": "visible"}


def write_game(folder: Path, records: list[dict[str, str]], labels: str, videos: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for video in videos:
        write_video(folder / video, draw_game(50, ()))
    (folder / labels).write_text(json.dumps({"annotations": records}))
    return folder


def read(found: LabelSet) -> list[tuple[str, list[tuple[str, int]]]]:
    """Game by game: its name, and its actions in words."""
    return [
        (game.name, [(found.labels[c], ms) for ms, c in actions.tolist()])
        for game, actions in zip(found.games, found.actions, strict=True)
    ]


def test_games_of_spotting_have_twelve_classes(tmp_path: Path) -> None:
    records = [record("GOAL", 950), record("SHOT", 900), record("FREE KICK", 20)]
    write_game(tmp_path / "train" / "england_efl" / "game", records, "Labels-ball.json", ("224p.mp4",))
    found = read_label_set(tmp_path)
    assert found.labels == BALL_ACTIONS
    assert len(found.labels) == 12
    assert read(found) == [("game", [("FREE KICK", 20), ("SHOT", 900), ("GOAL", 950)])]
    assert found.games[0].split == "train"
    assert found.games[0].events == ()
    assert found.counts()["GOAL"] == 1
    assert FrameCache(found.games, torch.device("cpu"), "memory").size == (32, 64)


def test_games_of_broadcast_actions_have_seventeen_and_two_halves(tmp_path: Path) -> None:
    """As SoccerNet lays it out, other label files beside it."""
    records = [record("Kick-off", 40), record("Yellow->red card", 700), record("Kick-off", 80, half=2)]
    game = tmp_path / "spain_laliga" / "2014-2015" / "2015-02-14 - 20-00 Real Madrid 3 - 2 Elche"
    write_game(game, records, "Labels-v2.json", ("1_224p.mkv", "2_224p.mkv"))
    (game / "Labels-cameras.json").write_text("{}")
    found = read_label_set(tmp_path)
    assert found.labels == BROADCAST_ACTIONS
    assert len(found.labels) == 17
    name = game.name
    assert read(found) == [
        (f"{name} (1)", [("Kick-off", 40), ("Yellow->red card", 700)]),
        (f"{name} (2)", [("Kick-off", 80)]),
    ]


def test_simulated_matches_have_the_ten_and_with_a_goal_twelve(tmp_path: Path) -> None:
    make_matches(tmp_path, ("train", "valid"), frames=60)
    found = read_label_set(tmp_path)
    assert found.labels == ACTIONS
    assert [[ms for ms, _ in actions] for actions in map(np.ndarray.tolist, found.actions)] == [
        [event.position_ms for event in game.events] for game in find_games(tmp_path)
    ]
    matches = json.loads((tmp_path / "matches.json").read_text())
    matches[1]["actions"].append({"label": "GOAL", "position": 2000})
    (tmp_path / "matches.json").write_text(json.dumps(matches))
    found = read_label_set(tmp_path)
    assert found.labels == BALL_ACTIONS
    assert read(found)[1][1][-1] == ("GOAL", 2000)
    assert "GOAL" not in {event.label for game in find_games(tmp_path) for event in game.events}


def test_clips_have_the_ten(tmp_path: Path) -> None:
    make_clips(tmp_path / "train", count=2, seed=1)
    found, (game,) = read_label_set(tmp_path), find_games(tmp_path)
    assert found.labels == ACTIONS
    assert read(found) == [(game.name, [(e.label, e.position_ms) for e in game.events])]
    assert found.games[0].segments == game.segments


def test_labels_of_another_kind_give_their_own_list(tmp_path: Path) -> None:
    write_game(tmp_path / "a", [record("smash", 40), record("lob", 80)], "Labels-tennis.json", ("224p.mp4",))
    write_game(tmp_path / "b", [record("ace", 40)], "Labels-tennis.json", ("224p.mp4",))
    found = read_label_set(tmp_path)
    assert found.labels == ("ace", "lob", "smash")
    assert read(found) == [("a", [("smash", 40), ("lob", 80)]), ("b", [("ace", 40)])]


@pytest.mark.parametrize(
    ("labels", "label", "words"),
    [
        (
            "Labels-ball.json",
            "Free kick",
            r"Labels-ball\.json: annotations\[1\]: unknown label 'Free kick' .*FREE KICK",
        ),
        ("Labels-v2.json", "PASS", r"Labels-v2\.json: annotations\[1\]: unknown label 'PASS'"),
    ],
)
def test_an_unknown_label_is_an_error_with_its_place(tmp_path: Path, labels: str, label: str, words: str) -> None:
    good = "PASS" if labels == "Labels-ball.json" else "Foul"
    write_game(tmp_path, [record(good, 0), record(label, 40)], labels, ("224p.mp4",))
    with pytest.raises(InputError, match=words):
        read_label_set(tmp_path)


def test_what_is_no_label_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_label_set(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no labels"):
        read_label_set(tmp_path)
    write_game(tmp_path / "a", [record("PASS", 40)], "Labels-ball.json", ("224p.mp4",))
    write_game(tmp_path / "b", [record("Foul", 40)], "Labels-v2.json", ("224p.mp4",))
    with pytest.raises(InputError, match=r"has Labels-ball\.json and Labels-v2\.json"):
        read_label_set(tmp_path)


def test_held_out_games_are_in_no_label_set(tmp_path: Path) -> None:
    """By their split, by name, and by video, whatever they are called in the other folder."""
    source, other = (
        make_matches(tmp_path / "a" / "sim", ("train", "valid", "x", "x"), frames=30),
        tmp_path / "b" / "sim",
    )
    write_game(other / "g1", [record("PASS", 40)], "Labels-ball.json", ("224p.mp4",))
    write_game(other / "test" / "g2", [record("PASS", 40)], "Labels-ball.json", ("224p.mp4",))
    write_game(other / "g3", [record("PASS", 40)], "Labels-ball.json", ())
    (other / "g3" / "224p.mp4").symlink_to(source / "match_003.mp4")
    config = GamesConfig(
        (str(source),), train=("*",), valid=("valid",), test=("match_003",), also=(str(source), str(other))
    )
    first, second = choose_label_sets(config)
    assert (first.name, second.name) == ("sim", "sim-2")
    assert [game.name for game in first.games] == ["match_000", "match_002"]
    assert [game.name for game in second.games] == ["g1"]
    assert len(second.actions) == 1
    assert choose_label_sets(GamesConfig((str(source),))) == []
    with pytest.raises(InputError, match="every game of it is held out"):
        choose_label_sets(GamesConfig((str(source),), valid=("*",), also=(str(source),)))


def test_pretrain_has_one_label_set() -> None:
    with pytest.raises(InputError, match=r"data\.also"):
        PretrainRecipe(data=GamesConfig(also=("other",)))

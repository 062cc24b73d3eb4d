"""Games in three layouts, and frames that come back as they were drawn."""

import json
import os
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from games import as_coded, draw_game, make_events, make_matches, write_video

from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.core.pretrain_config import GamesConfig
from ballcast.data.labels.games import Game, VideoSegment, choose, choose_games, find_games
from ballcast.data.labels.soccernet import write_labels
from ballcast.data.samples.frames import UNSURE, FrameCache
from ballcast.video.decode_pool import DecoderPool

CPU = torch.device("cpu")


def write_spotting(folder: Path, annotations: list[dict[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Labels-ball.json").write_text(json.dumps({"annotations": annotations}))


def annotation(label: str, position: int, half: int = 1) -> dict[str, str]:
    time = {"gameTime": f"{half} - 00:12", "position": str(position)}
    return {**time, "label": label, "team": "left", "visibility": "visible"}


def test_simulated_matches(tmp_path: Path) -> None:
    games = find_games(make_matches(tmp_path, ("train", "valid"), frames=60))
    assert [(g.name, g.split, g.segments[0].stop) for g in games] == [
        ("match_000", "train", 60),
        ("match_001", "valid", 60),
    ]
    assert games[0].events == make_events(60, seed=0)


def test_simbaa_as_it_is(shared: Path) -> None:
    games = find_games(shared / "data" / "simbaa")
    counts = {split: sum(len(g.events) for g in games if g.split == split) for split in ("train", "valid", "test")}
    assert counts == {"train": 1024, "valid": 161, "test": 312}


def test_a_game_of_spotting_with_one_video(tmp_path: Path) -> None:
    game = tmp_path / "england_efl" / "2019-2020" / "2019-10-01 - Leeds United - West Bromwich"
    write_spotting(game, [annotation("SHOT", 900), annotation("PASS", 400), annotation("GOAL", 950)])
    write_video(game / "224p.mp4", draw_game(50, ()))
    write_video(game / "720p.mp4", draw_game(50, ()))
    (found,) = find_games(tmp_path)
    assert found.name == game.name
    assert found.segments == (VideoSegment(game / "224p.mp4"),)  # the smaller
    assert [(e.label, e.position_ms) for e in found.events] == [("PASS", 400), ("SHOT", 900)]


def test_a_game_of_spotting_with_two_halves(tmp_path: Path) -> None:
    write_spotting(tmp_path / "game", [annotation("PASS", 400), annotation("DRIVE", 300, half=2)])
    for half in (1, 2):
        write_video(tmp_path / "game" / f"{half}_720p.mkv", draw_game(50, ()))
    first, second = find_games(tmp_path)
    assert (first.name, second.name) == ("game (1)", "game (2)")
    assert [e.label for e in first.events] == ["PASS"]
    assert [e.label for e in second.events] == ["DRIVE"]


def test_one_video_and_labels_of_two_halves(tmp_path: Path) -> None:
    """Positions that go on through the video are taken as they are; those that begin anew cannot be placed in it."""
    game = tmp_path / "game"
    write_video(game / "224p.mp4", draw_game(50, ()))
    write_spotting(game, [annotation("PASS", 400), annotation("DRIVE", 900, half=2)])
    (found,) = find_games(tmp_path)
    assert [(e.label, e.position_ms) for e in found.events] == [("PASS", 400), ("DRIVE", 900)]
    write_spotting(game, [annotation("PASS", 400), annotation("DRIVE", 300, half=2)])
    with pytest.raises(InputError, match=r"Labels-ball\.json: its second half counts from its own start"):
        find_games(tmp_path)
    for half in (1, 2):  # as the sentence asks for
        write_video(game / f"{half}_224p.mp4", draw_game(50, ()))
    assert [[e.label for e in half.events] for half in find_games(tmp_path)] == [["PASS"], ["DRIVE"]]


def test_a_half_without_labels_does_not_teach_that_nothing_happens(tmp_path: Path) -> None:
    write_spotting(tmp_path / "game", [annotation("PASS", 400)])
    for half in (1, 2):
        write_video(tmp_path / "game" / f"{half}_720p.mkv", draw_game(50, ()))
    with pytest.raises(InputError, match=r"no actions of half 2, but its video 2_720p\.mkv"):
        find_games(tmp_path)


def test_clips_of_snbaa_become_their_game_again(tmp_path: Path) -> None:
    """Eight clips of a 65 s game, 5 s apart: every frame once, the labels once, and each clip knows its place."""
    frames, events = 35 * 25 + 750, tuple(Event("PASS", t, "home") for t in range(1000, 80_000, 1800))
    drawn = draw_game(frames, ())
    clips = []
    for n in range(8):
        inside = [Event(e.label, e.position_ms - 5000 * n, e.team) for e in events]
        past = tuple(e for e in inside if 0 <= e.position_ms < 30_000)
        clips.append(Clip(f"clip_{n + 1}", past, tuple(e for e in inside if 30_000 <= e.position_ms < 35_000)))
        write_video(tmp_path / "train" / f"clip_{n + 1}" / "224p.mp4", drawn[125 * n : 125 * n + 750])
    write_labels(tmp_path / "train" / "Labels-ball.json", clips)
    (game,) = find_games(tmp_path)
    assert (game.name, game.split) == ("train/clip_1", "train")
    assert [e.position_ms for e in game.events] == [e.position_ms for e in events if e.position_ms < 65_000]
    assert game.clips == {f"clip_{n + 1}": 125 * n for n in range(8)}
    bank = FrameCache([game], CPU, "memory")
    assert bank.total == frames
    assert np.abs(bank.read(0, frames).numpy() - as_coded(drawn)).mean() < 4
    assert find_games(tmp_path / "train")[0].events == game.events  # one split alone is read too


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "PAS"}, r"annotations\[0\].*PAS.*PASS"),
        ({"position": "-5"}, "before the video"),
        ({"gameTime": "x"}, "gameTime"),
    ],
)
def test_bad_labels_name_their_place(tmp_path: Path, change: dict[str, str], words: str) -> None:
    write_spotting(tmp_path, [{**annotation("PASS", 400), **change}])
    with pytest.raises(InputError, match=words):
        find_games(tmp_path)


def test_what_is_no_data_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        find_games(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no labelled games"):
        find_games(tmp_path)
    write_spotting(tmp_path / "game", [])
    with pytest.raises(InputError, match="no video like"):
        find_games(tmp_path)
    (tmp_path / "matches.json").write_text('[{"video": "../a.mp4", "frames": 5, "split": "x", "actions": []}]')
    with pytest.raises(InputError, match="name of a file beside"):
        find_games(tmp_path)


def test_held_out_games_are_never_trained_on(tmp_path: Path) -> None:
    make_matches(tmp_path, ("a", "b", "c"), frames=30)
    config = GamesConfig(sources=(str(tmp_path),), train=("*",), valid=("b",), test=("match_002",))
    chosen = {split: [g.name for g in games] for split, games in choose_games(config).items()}
    assert chosen == {"train": ["match_000"], "valid": ["match_001"], "test": ["match_002"]}
    with pytest.raises(InputError, match="no game or split is called 'd'; there are a, b, c"):
        choose(find_games(tmp_path), ["d"])
    with pytest.raises(InputError, match="held out"):
        choose_games(GamesConfig(sources=(str(tmp_path),), train=("a",), valid=("*",)))


def test_frames_are_the_same_from_memory_and_from_disk(tmp_path: Path) -> None:
    games = find_games(make_matches(tmp_path, ("a", "b"), frames=80))
    memory, disk = (FrameCache(games, CPU, where, workers=2) for where in ("memory", "disk"))  # type: ignore[arg-type]
    assert memory.first.tolist() == disk.first.tolist() == [0, 80]
    order = np.random.default_rng(0).integers(0, 50, (5, 3, 1)) + 80 * np.array([0, 1, 0])[:, None] + 2 * np.arange(15)
    for step, (one, other) in enumerate(zip(memory.stream(order), disk.stream(order), strict=True)):
        assert torch.equal(one, other)
        assert torch.equal(one, memory.take(order[step]))
        assert torch.equal(other, disk.take(order[step]))
    assert torch.equal(memory.read(70, 90), disk.read(70, 90))  # over the edge of two games
    drawn = draw_game(80, games[1].events, seed=1)
    assert np.abs(memory.read(80, 160).numpy() - as_coded(drawn)).mean() < 4


def test_frames_do_not_depend_on_who_decodes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, processes that write into memory, and processes whose frames are copied on, as to a GPU."""
    games = find_games(make_matches(tmp_path, ("a", "b"), frames=80))
    alone = FrameCache(games, CPU, "memory", lines=16, workers=1)
    monkeypatch.setattr("ballcast.data.samples.frames.SHORT", 30)  # runs of 30 frames: six, of which two are short
    started = []
    start = DecoderPool.__init__
    monkeypatch.setattr(DecoderPool, "__init__", lambda pool, devices: (start(pool, devices), started.append(pool))[0])
    done: list[int] = []
    together = FrameCache(games, CPU, "memory", lines=16, workers=2, progress=lambda n, total: done.append(n))
    monkeypatch.setattr("ballcast.data.samples.frames.place", lambda *_: "gpu")
    monkeypatch.setattr("ballcast.data.samples.frames.CHUNK_BYTES", 7 * 16 * 32)  # seven frames a chunk
    copied = FrameCache(games, CPU, lines=16, workers=2)
    assert [pool.apart for pool in started] == [hasattr(os, "memfd_create")] * 2
    assert together.size == copied.size == (16, 32)
    assert torch.equal(alone.read(0, 160), together.read(0, 160))
    assert torch.equal(alone.read(0, 160), copied.read(0, 160))
    assert len(done) == 6
    assert done[-1] == 160


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_frames_in_colour(tmp_path: Path, where: Literal["memory", "disk"]) -> None:
    games = find_games(make_matches(tmp_path, ("a",), frames=40))
    gray, colour = FrameCache(games, CPU, where), FrameCache(games, CPU, where, colour=True)
    assert colour.size == gray.size == (32, 64)
    order = np.arange(20).reshape(2, 2, 5)
    for luma, i420 in zip(gray.stream(order), colour.stream(order), strict=True):
        assert i420.shape == (2, 5, 48, 64)
        assert torch.equal(i420[:, :, :32], luma)
        assert (i420[:, :, 32:] == 128).all()  # the videos are gray
    assert colour.read(3, 9).shape == (6, 48, 64)


def test_a_video_shorter_than_its_labels_say_is_told(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", draw_game(40, ()))
    with pytest.raises(InputError, match=r"a\.mp4: ends at frame 40, before frame 60"):
        FrameCache([Game("a", "", (VideoSegment(path, 0, 60),), ())], CPU, "memory")
    assert FrameCache([Game("a", "", (VideoSegment(path),), ())], CPU, "memory").total == 40 - UNSURE
    write_video(tmp_path / "b.mp4", np.zeros((40, 48, 64), np.uint8))
    both = [Game(n, "", (VideoSegment(tmp_path / f"{n}.mp4", 0, 40),), ()) for n in ("a", "b")]
    with pytest.raises(InputError, match=r"b\.mp4: its frames are 64×48, those before it 64×32"):
        FrameCache(both, CPU, "memory")

"""Labelled games to learn spotting from: SN-BAS, SN-BAA's stitched clips, simulated matches; videos and actions."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ballcast.core.actions import ACTIONS, CLIP_FRAMES, FPS, FRAME_MS, IGNORED_LABELS, action_index
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.core.files import Defects, get, read_json, whole_number
from ballcast.core.pretrain_config import GamesConfig
from ballcast.core.util import natural
from ballcast.data.labels.soccernet import RESOLUTIONS, SPLITS, read_labels
from ballcast.data.samples.windows import STEP_MS, Stretch, stitch
from ballcast.features.store import LABELS
from ballcast.features.videos import SUFFIXES

MATCHES = "matches.json"
_GAME_TIME = re.compile(r"\s*([12])\s*-")  # "2 - 05:17": the half, and the minute in it


@dataclass(frozen=True)
class Match:
    """A simulated match: its video's name, the split it belongs to, its frames, its actions in order of time."""

    video: str
    split: str
    frames: int
    events: tuple[Event, ...]


def read_halves(path: Path) -> dict[int, tuple[Event, ...]]:
    """The actions of an SN-BAS game in each half (1, 2), positions in ms as the file has them, in order of time.

    FREE KICK and GOAL are left out.
    """
    defects = Defects(str(path), strict=True)
    halves: dict[int, list[Event]] = {}
    with defects.at(""):
        for i, record in enumerate(get(read_json(path, "labels"), "annotations", list, "a list")):
            with defects.at(f"annotations[{i}]"):
                if (event := _event(record)) is None:
                    continue
                told = get(record, "gameTime", str, "text") if "gameTime" in record else "1 -"
                half = _GAME_TIME.match(told)
                if half is None:
                    raise InputError(f"'gameTime' is {told!r} instead of something like '1 - 00:12'")
                halves.setdefault(int(half.group(1)), []).append(event)
    return {half: _in_order(events) for half, events in halves.items()}


def begins_anew(halves: Mapping[int, tuple[Event, ...]]) -> bool:
    """Whether the second half's positions count from its own start, and not from that of a video of the whole game."""
    first, second = halves.get(1, ()), halves.get(2, ())
    return bool(first and second) and second[0].position_ms < first[-1].position_ms


def one_clock(path: Path, halves: Mapping[int, tuple[Event, ...]]) -> tuple[Event, ...]:
    """The actions of a game that is one video, from the halves of the file `path`, in order of time.

    Usually all of them say half 1. Where the second half begins anew, no label says where in the video: an InputError.
    """
    if begins_anew(halves):
        raise InputError(
            f"{path}: its second half counts from its own start, and where that is in a video of the whole game is not "
            "told; give a video of each half, 1_224p.mp4 and 2_224p.mp4"
        )
    return halves.get(1, ()) + halves.get(2, ())


def read_matches(path: Path) -> list[Match]:
    """The matches of a `matches.json`, in file order."""
    defects = Defects(str(path), strict=True)
    tree, matches = read_json(path, "matches"), []
    if not isinstance(tree, list):
        raise InputError(f"{path}: must be a list of matches")
    for i, record in enumerate(tree):
        with defects.at(f"[{i}]"):
            video, frames = get(record, "video", str, "text"), whole_number(record, "frames")
            if Path(video).name != video or frames <= 0:
                raise InputError(f"'video' must be the name of a file beside {MATCHES}, and 'frames' positive")
            events = []
            for k, action in enumerate(get(record, "actions", list, "a list")):
                with defects.at(f"[{i}].actions[{k}]"):
                    if (event := _event(action)) is not None:
                        events.append(event)
            matches.append(Match(video, get(record, "split", str, "text"), frames, _in_order(events)))
    return matches


def _event(record: Any) -> Event | None:
    label, position = get(record, "label", str, "text"), whole_number(record, "position")
    if label in IGNORED_LABELS:
        return None
    action_index(label)
    if position < 0:
        raise InputError(f"position {position} is before the video begins")
    team = get(record, "team", str, "text") if "team" in record else ""
    return Event(label, position, team, record.get("visibility", "visible") != "not shown")


def _in_order(events: list[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.position_ms))


STEP_FRAMES = STEP_MS // FRAME_MS


@dataclass(frozen=True)
class VideoSegment:
    """Frames start … stop − 1 of a video, at 25 fps; `stop` None: to its end, which only the file knows."""

    path: Path
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Game:
    """A game, or a stretch of one: segments of video that follow each other without a gap.

    Attributes:
        name: "match_003", "2019-10-01 - Leeds United - West Bromwich", or "train/clip_1" after its first clip.
        split: what its data set calls it: "train"; empty where there are none.
        segments: the video.
        events: what happens, by time in ms from the first frame.
        clips: of SN-BAA, the first frame of each of its clips.
    """

    name: str
    split: str
    segments: tuple[VideoSegment, ...]
    events: tuple[Event, ...]
    clips: dict[str, int] = field(default_factory=dict)


def find_games(folder: Path) -> list[Game]:
    """All labelled games of a folder, in order."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of SN-BAA, SN-BAS or simulated matches")
    if (folder / MATCHES).is_file():
        return [
            Game(Path(m.video).stem, m.split, (VideoSegment(folder / m.video, 0, m.frames),), m.events)
            for m in read_matches(folder / MATCHES)
        ]
    splits = [folder / split for split in SPLITS if (folder / split / LABELS).is_file()]
    if not splits and (folder / LABELS).is_file() and "videos" in _keys(folder / LABELS):
        splits = [folder]
    if splits:
        return [game for split in splits for game in split_games(split)]
    games = sorted(folder.rglob(LABELS), key=lambda path: natural(str(path)))
    found = [game for labels in games for game in _spotting_games(labels)]
    if not found:
        inside = [folder / r for r in RESOLUTIONS if (folder / r).is_dir()]
        hint = f"; give {inside[0]}" if inside else ""
        raise InputError(
            f"{folder}: has no labelled games: no {MATCHES}, no splits of SN-BAA, no {LABELS} beside videos{hint}"
        )
    return found


def choose(games: Sequence[Game], wanted: Sequence[str]) -> list[Game]:
    """The games whose split or name is wanted (* and ? stand for anything); a wish that no game fulfils is an error."""
    for wish in wanted:
        if not any(_fits(game, wish) for game in games):
            names = sorted({game.split for game in games} - {""}) or [game.name for game in games[:5]]
            raise InputError(f"no game or split is called {wish!r}; there are {', '.join(names)}")
    return [game for game in games if any(_fits(game, wish) for wish in wanted)]


def choose_games(config: GamesConfig) -> dict[str, list[Game]]:
    """The games to train on, to be chosen by and to be tested on, by "train", "valid" and "test"."""
    games = [game for source in config.sources for game in find_games(Path(source))]
    valid, test = choose(games, config.valid), choose(games, config.test)
    if both := {game.name for game in valid} & {game.name for game in test}:
        raise InputError(f"{min(both)} is in data.valid and in data.test; take it out of one")
    train = [game for game in choose(games, config.train) if game not in valid and game not in test]
    if not train:
        raise InputError("every game of data.train is held out by data.valid or data.test; leave some to learn from")
    return {"train": train, "valid": valid, "test": test}


def count_actions(games: Sequence[Game]) -> dict[str, int]:
    """How often each action happens in the games."""
    counts = Counter(event.label for game in games for event in game.events)
    return {action: counts[action] for action in ACTIONS}


def split_games(folder: Path) -> list[Game]:
    """The stretches of games that the clips of one split of SN-BAA can be joined into."""
    return [_stretch_game(folder, stretch) for stretch in stitch([c for c in read_labels(folder) if c.labelled])]


def _stretch_game(folder: Path, stretch: Stretch) -> Game:
    """Each frame once: every sixth clip, and of the last what those before it do not have."""
    clips = stretch.clips
    frames = (len(clips) - 1) * STEP_FRAMES + CLIP_FRAMES
    segments, done = [], 0
    while done < frames:
        i = min(done // STEP_FRAMES, len(clips) - 1)
        segments.append(VideoSegment(_clip_video(folder, clips[i]), done - i * STEP_FRAMES, CLIP_FRAMES))
        done = i * STEP_FRAMES + CLIP_FRAMES
    events = tuple(e for e in stretch.events() if e.position_ms * FPS < frames * 1000)
    offsets = {clip.name: i * STEP_FRAMES for i, clip in enumerate(clips)}
    return Game(f"{folder.name}/{clips[0].name}", folder.name, tuple(segments), events, offsets)


def _clip_video(folder: Path, clip: Clip) -> Path:
    inside = sorted(p for p in (folder / clip.name).glob("*") if p.suffix.lower() in SUFFIXES)
    if len(inside) != 1:
        raise InputError(f"{folder / clip.name}: has {len(inside)} videos; a clip's folder must have one")
    return inside[0]


def _spotting_games(labels: Path) -> list[Game]:
    """The game beside an SN-BAS label file, or its two halves; of several resolutions the smallest."""
    folder, halves = labels.parent, read_halves(labels)
    names = [f"{resolution}{suffix}" for resolution in RESOLUTIONS for suffix in SUFFIXES]
    whole = next((path for name in names if (path := folder / name).is_file()), None)
    parts = next((name for name in names if all((folder / f"{half}_{name}").is_file() for half in (1, 2))), None)
    if parts and (whole is None or begins_anew(halves)):
        if missing := {1, 2} - halves.keys():
            raise InputError(
                f"{labels}: has no actions of half {min(missing)}, but its video {min(missing)}_{parts} is there"
            )
        videos = {half: folder / f"{half}_{parts}" for half in (1, 2)}
        return [
            Game(f"{folder.name} ({half})", "", (VideoSegment(path),), halves[half]) for half, path in videos.items()
        ]
    if whole is None:
        raise InputError(f"{folder}: has {LABELS} but no video like {RESOLUTIONS[0]}.mp4 or 1_{RESOLUTIONS[1]}.mkv")
    return [Game(folder.name, "", (VideoSegment(whole),), one_clock(labels, halves))]


def _fits(game: Game, wish: str) -> bool:
    return wish == game.split or wish == game.name or fnmatchcase(game.name, wish)


def _keys(path: Path) -> set[str]:
    tree = read_json(path, "labels")
    return set(tree) if isinstance(tree, dict) else set()

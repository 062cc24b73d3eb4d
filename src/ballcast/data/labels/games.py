"""Labelled games for training a spotter: SN-BAS games, SN-BAA's clips joined into games, simulated matches."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ballcast.core.actions import ACTIONS, CLIP_FRAMES, FPS, FRAME_MS, IGNORED_LABELS
from ballcast.core.checks import Defects, get, whole_number
from ballcast.core.errors import InputError
from ballcast.core.events import Event, action_index
from ballcast.core.files import read_json
from ballcast.core.pretrain_config import GamesConfig
from ballcast.core.util import natural
from ballcast.data.labels.soccernet import RESOLUTIONS, SPLITS, read_labels
from ballcast.data.samples.windows import STEP_MS, Stretch, stitch
from ballcast.features.store import LABELS
from ballcast.video.container import SUFFIXES, clip_video

MATCHES = "matches.json"
GAME_TIME = re.compile(r"\s*([12])\s*-")  # "2 - 05:17": the half, and the time in it


class Timed(Protocol):
    """Anything with a time in ms, such as an `Event`."""

    @property
    def position_ms(self) -> int: ...


T = TypeVar("T", bound=Timed)


@dataclass(frozen=True)
class Match:
    """A simulated match: its video's file name, its split, its number of frames, its actions in order of time."""

    video: str
    split: str
    frames: int
    events: tuple[Event, ...]


def read_halves(path: Path) -> dict[int, tuple[Event, ...]]:
    """Read the actions of an SN-BAS game, without FREE KICK and GOAL.

    Returns:
        Half (1 or 2) → its actions in order of time, positions in ms as the file has them.
    """
    return halves_of(path, _event)


def halves_of(path: Path, parse: Callable[[Any], T | None]) -> dict[int, tuple[T, ...]]:
    """Read the "annotations" of a label file of SoccerNet's form.

    Args:
        path: the file; each record has a "gameTime" like "1 - 00:12", without one it is of the first half.
        parse: makes an event of a record; None leaves it out, an InputError is raised with its place.

    Returns:
        Half (1 or 2) → its events in order of time.
    """
    defects = Defects(str(path), strict=True)
    halves: dict[int, list[T]] = {}
    with defects.at(""):
        for i, record in enumerate(get(read_json(path, "labels"), "annotations", list, "a list")):
            with defects.at(f"annotations[{i}]"):
                if (event := parse(record)) is None:
                    continue
                clock = get(record, "gameTime", str, "text") if "gameTime" in record else "1 -"
                half = GAME_TIME.match(clock)
                if half is None:
                    raise InputError(f"'gameTime' is {clock!r} instead of something like '1 - 00:12'")
                halves.setdefault(int(half.group(1)), []).append(event)
    return {half: in_order(events) for half, events in halves.items()}


def restarts_clock(halves: Mapping[int, tuple[T, ...]]) -> bool:
    """Whether positions in the second half count from its own start, not from the start of the whole game's video."""
    first, second = halves.get(1, ()), halves.get(2, ())
    return bool(first and second) and second[0].position_ms < first[-1].position_ms


def one_clock(path: Path, halves: Mapping[int, tuple[T, ...]]) -> tuple[T, ...]:
    """Join the halves of the label file `path` for a game that is one video, in order of time.

    Usually every action is labelled half 1. If the clock restarts with the second half, the labels do not give the
    place in the video: an InputError.
    """
    if restarts_clock(halves):
        raise InputError(
            f"{path}: its second half counts from its own start, and where that is in a video of the whole game is not "
            "known; give a video of each half, 1_224p.mp4 and 2_224p.mp4"
        )
    return halves.get(1, ()) + halves.get(2, ())


def read_matches(path: Path) -> list[Match]:
    """Read the matches of a `matches.json`, in file order, without FREE KICK and GOAL."""
    return [Match(*match) for match in matches_of(path, _event)]


def matches_of(path: Path, parse: Callable[[Any], T | None]) -> list[tuple[str, str, int, tuple[T, ...]]]:
    """Read a `matches.json`; `parse` makes an event of a record, as in `halves_of`.

    Returns:
        For each match its video, its split, its number of frames and its events in order of time.
    """
    defects = Defects(str(path), strict=True)
    tree = read_json(path, "matches")
    matches = []
    if not isinstance(tree, list):
        raise InputError(f"{path}: must be a list of matches")
    for i, record in enumerate(tree):
        with defects.at(f"[{i}]"):
            video = get(record, "video", str, "text")
            frames = whole_number(record, "frames")
            if Path(video).name != video or frames <= 0:
                raise InputError(f"'video' must be the name of a file beside {MATCHES}, and 'frames' positive")
            events = []
            for k, action in enumerate(get(record, "actions", list, "a list")):
                with defects.at(f"[{i}].actions[{k}]"):
                    if (event := parse(action)) is not None:
                        events.append(event)
            matches.append((video, get(record, "split", str, "text"), frames, in_order(events)))
    return matches


def _event(record: Any) -> Event | None:
    label = get(record, "label", str, "text")
    if label in IGNORED_LABELS:
        return None
    action_index(label)
    position = position_of(record)
    team = get(record, "team", str, "text") if "team" in record else ""
    return Event(label, position, team, record.get("visibility", "visible") != "not shown")


def position_of(record: Any) -> int:
    """Return the "position" of a record, in ms from the start of the video."""
    position = whole_number(record, "position")
    if position < 0:
        raise InputError(f"position {position} is before the video begins")
    return position


def in_order(events: Sequence[T]) -> tuple[T, ...]:
    """Sort events by time."""
    return tuple(sorted(events, key=lambda event: event.position_ms))


STEP_FRAMES = STEP_MS // FRAME_MS


@dataclass(frozen=True)
class VideoSegment:
    """Frames start … stop − 1 of a video, at 25 fps; `stop` None: to the end of the file."""

    path: Path
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Game:
    """A game, or a part of one: video segments that follow each other without a gap.

    Attributes:
        name: "match_003", "2019-10-01 - Leeds United - West Bromwich", or "train/clip_1" after its first clip.
        split: the split of its data set, such as "train"; empty if it has none.
        segments: its video.
        events: its actions; positions in ms from its first frame.
        clips: for SN-BAA, clip name → the clip's first frame in the game.
    """

    name: str
    split: str
    segments: tuple[VideoSegment, ...]
    events: tuple[Event, ...]
    clips: dict[str, int] = field(default_factory=dict)


def find_games(folder: Path) -> list[Game]:
    """Find all labelled games of a folder of SN-BAA, SN-BAS or simulated matches, in natural order."""
    require_folder(folder)
    if (folder / MATCHES).is_file():
        return [
            Game(Path(m.video).stem, m.split, (VideoSegment(folder / m.video, 0, m.frames),), m.events)
            for m in read_matches(folder / MATCHES)
        ]
    if splits := split_folders(folder):
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


def require_folder(folder: Path) -> None:
    """Raise an InputError if there is no such folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of SN-BAA, SN-BAS or simulated matches")


def split_folders(folder: Path) -> list[Path]:
    """Return the folders of SN-BAA's splits in `folder`, or `folder` itself if it is one; empty if it is neither."""
    splits = [folder / split for split in SPLITS if (folder / split / LABELS).is_file()]
    if not splits and (folder / LABELS).is_file() and "videos" in _keys(folder / LABELS):
        splits = [folder]
    return splits


def choose(games: Sequence[Game], wanted: Sequence[str]) -> list[Game]:
    """Select the games whose split or name matches one of the patterns `wanted` (with * and ?).

    A pattern that matches no game is an InputError.
    """
    for pattern in wanted:
        if not any(is_called(game, pattern) for game in games):
            names = sorted({game.split for game in games} - {""}) or [game.name for game in games[:5]]
            raise InputError(f"no game or split is called {pattern!r}; there are {', '.join(names)}")
    return [game for game in games if any(is_called(game, pattern) for pattern in wanted)]


def choose_games(config: GamesConfig) -> dict[str, list[Game]]:
    """Select the games for training, for choosing the epoch and for testing: "train", "valid", "test" → games."""
    games = [game for source in config.sources for game in find_games(Path(source))]
    valid = choose(games, config.valid)
    test = choose(games, config.test)
    if both := {game.name for game in valid} & {game.name for game in test}:
        raise InputError(f"{min(both)} is in data.valid and in data.test; take it out of one")
    train = [game for game in choose(games, config.train) if game not in valid and game not in test]
    if not train:
        raise InputError("every game of data.train is held out by data.valid or data.test; leave some to train on")
    return {"train": train, "valid": valid, "test": test}


def count_actions(games: Sequence[Game]) -> dict[str, int]:
    """Count the events of each action in the games."""
    counts = Counter(event.label for game in games for event in game.events)
    return {action: counts[action] for action in ACTIONS}


def split_games(folder: Path) -> list[Game]:
    """Join the clips of one split of SN-BAA into games."""
    return [_stretch_game(folder, stretch) for stretch in stitch([c for c in read_labels(folder) if c.labelled])]


def _stretch_game(folder: Path, stretch: Stretch) -> Game:
    """Cover each frame once: every sixth clip, and the part of the last clip that the others do not cover."""
    clips = stretch.clips
    frames = (len(clips) - 1) * STEP_FRAMES + CLIP_FRAMES
    segments = []
    done = 0
    while done < frames:
        i = min(done // STEP_FRAMES, len(clips) - 1)
        segments.append(VideoSegment(clip_video(folder / clips[i].name), done - i * STEP_FRAMES, CLIP_FRAMES))
        done = i * STEP_FRAMES + CLIP_FRAMES
    events = tuple(e for e in stretch.events() if e.position_ms * FPS < frames * 1000)
    offsets = {clip.name: i * STEP_FRAMES for i, clip in enumerate(clips)}
    return Game(f"{folder.name}/{clips[0].name}", folder.name, tuple(segments), events, offsets)


def _spotting_games(labels: Path) -> list[Game]:
    """Return the game beside an SN-BAS label file, or its two halves."""
    return [Game(name, "", segments, events) for name, segments, events in game_videos(labels, read_halves(labels))]


def game_videos(
    labels: Path, halves: Mapping[int, tuple[T, ...]]
) -> list[tuple[str, tuple[VideoSegment, ...], tuple[T, ...]]]:
    """Find the video of a game beside its label file, or those of its halves; of several resolutions the smallest.

    Returns:
        Name, video and events of the game, or of each half.
    """
    folder = labels.parent
    names = [f"{resolution}{suffix}" for resolution in RESOLUTIONS for suffix in SUFFIXES]
    whole = next((path for name in names if (path := folder / name).is_file()), None)
    parts = next((name for name in names if all((folder / f"{half}_{name}").is_file() for half in (1, 2))), None)
    if parts and (whole is None or restarts_clock(halves)):
        if missing := {1, 2} - halves.keys():
            raise InputError(
                f"{labels}: has no actions of half {min(missing)}, but its video {min(missing)}_{parts} is there"
            )
        return [
            (f"{folder.name} ({half})", (VideoSegment(folder / f"{half}_{parts}"),), halves[half]) for half in (1, 2)
        ]
    if whole is None:
        raise InputError(
            f"{folder}: has {labels.name} but no video like {RESOLUTIONS[0]}.mp4 or 1_{RESOLUTIONS[1]}.mkv"
        )
    return [(folder.name, (VideoSegment(whole),), one_clock(labels, halves))]


def is_called(game: Game, pattern: str) -> bool:
    """Whether the split or the name of a game matches a pattern (with * and ?)."""
    return pattern in (game.split, game.name) or fnmatchcase(game.name, pattern)


def _keys(path: Path) -> set[str]:
    tree = read_json(path, "labels")
    return set(tree) if isinstance(tree, dict) else set()

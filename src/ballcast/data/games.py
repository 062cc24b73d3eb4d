"""Games with labels to learn spotting from: where their pictures are, and what happens in them.

Three layouts are read, told apart by what is in the folder:
- SN-BAA, <folder>/{train,valid,…}/clip_N/224p.mp4 and Labels-ball.json, or one such split: clips that overlap, joined
  back into stretches of their games, so that every frame is there once;
- SN-BAS, <folder>/…/<game>/{224p,720p}.mp4 (or 1_720p.mkv and 2_720p.mkv) and Labels-ball.json, at any depth;
- simulated matches, <folder>/matches.json and the videos it names.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ballcast.core.actions import ACTIONS, CLIP_FRAMES, FPS, FRAME_MS
from ballcast.core.clips import Clip, Event
from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast.core.order import natural
from ballcast.core.pretrain import GamesConfig
from ballcast.data.soccernet import RESOLUTIONS, SPLITS, read_labels
from ballcast.data.spotting_labels import MATCHES, begins_anew, one_clock, read_halves, read_matches
from ballcast.data.stitch import STEP_MS, Stretch, stitch
from ballcast.features.sources import SUFFIXES
from ballcast.features.store import LABELS

STEP_FRAMES = STEP_MS // FRAME_MS


@dataclass(frozen=True)
class Piece:
    """Frames start … stop − 1 of a video, at 25 fps; `stop` None: to its end, which only the file knows."""

    path: Path
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Game:
    """A game, or a stretch of one: pieces of video that follow each other without a gap.

    Attributes:
        name: "match_003", "2019-10-01 - Leeds United - West Bromwich", or "train/clip_1" after its first clip.
        split: what its data set calls it: "train"; empty where there are none.
        pieces: the video.
        events: what happens, by time in ms from the first frame.
        clips: of SN-BAA, the first frame of each of its clips.
    """

    name: str
    split: str
    pieces: tuple[Piece, ...]
    events: tuple[Event, ...]
    clips: dict[str, int] = field(default_factory=dict)


def find_games(folder: Path) -> list[Game]:
    """All labelled games of a folder, in order."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give one of SN-BAA, SN-BAS or simulated matches")
    if (folder / MATCHES).is_file():
        return [
            Game(Path(m.video).stem, m.split, (Piece(folder / m.video, 0, m.frames),), m.events)
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
    pieces, done = [], 0
    while done < frames:
        i = min(done // STEP_FRAMES, len(clips) - 1)
        pieces.append(Piece(_clip_video(folder, clips[i]), done - i * STEP_FRAMES, CLIP_FRAMES))
        done = i * STEP_FRAMES + CLIP_FRAMES
    events = tuple(e for e in stretch.events() if e.position_ms * FPS < frames * 1000)
    offsets = {clip.name: i * STEP_FRAMES for i, clip in enumerate(clips)}
    return Game(f"{folder.name}/{clips[0].name}", folder.name, tuple(pieces), events, offsets)


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
        return [Game(f"{folder.name} ({half})", "", (Piece(path),), halves[half]) for half, path in videos.items()]
    if whole is None:
        raise InputError(f"{folder}: has {LABELS} but no video like {RESOLUTIONS[0]}.mp4 or 1_{RESOLUTIONS[1]}.mkv")
    return [Game(folder.name, "", (Piece(whole),), one_clock(labels, halves))]


def _fits(game: Game, wish: str) -> bool:
    return wish == game.split or wish == game.name or fnmatchcase(game.name, wish)


def _keys(path: Path) -> set[str]:
    tree = read_json(path, "labels")
    return set(tree) if isinstance(tree, dict) else set()

"""Label sets: games with another class list, each for a separate spotting head."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.checks import get
from ballcast.core.errors import InputError
from ballcast.core.pretrain_config import GamesConfig
from ballcast.core.util import natural
from ballcast.data.labels.games import (
    MATCHES,
    Game,
    VideoSegment,
    choose,
    find_games,
    game_videos,
    halves_of,
    is_called,
    matches_of,
    position_of,
    require_folder,
    split_folders,
    split_games,
)
from ballcast.data.labels.soccernet import SPLITS
from ballcast.features.store import LABELS

LABELS_V2 = "Labels-v2.json"  # of SN-AS
BALL_ACTIONS = (*ACTIONS, "FREE KICK", "GOAL")  # of SN-BAS
BROADCAST_ACTIONS = (  # SN-AS, in the order of SoccerNet's own list
    "Penalty",
    "Kick-off",
    "Goal",
    "Substitution",
    "Offside",
    "Shots on target",
    "Shots off target",
    "Clearance",
    "Ball out of play",
    "Throw-in",
    "Foul",
    "Indirect free-kick",
    "Direct free-kick",
    "Corner",
    "Yellow card",
    "Red card",
    "Yellow->red card",
)
KNOWN = {LABELS: BALL_ACTIONS, LABELS_V2: BROADCAST_ACTIONS}


@dataclass(frozen=True, slots=True)
class LabelledAction:
    """An action of any class list: its label, and its time in ms from the start of the video."""

    label: str
    position_ms: int


@dataclass(frozen=True)
class LabelSet:
    """Games labelled with one class list.

    Attributes:
        name: the name of the folder; with a number behind it, if an earlier one has the same.
        labels: the class list, C names.
        games: their `events` are empty, since an `Event` has one of the ten actions.
        actions: for each game, its actions by time: (n, 2) int64, position in ms and index in `labels`.
    """

    name: str
    labels: tuple[str, ...]
    games: tuple[Game, ...]
    actions: tuple[NDArray[np.int64], ...]

    def counts(self) -> dict[str, int]:
        """Count the actions of each class."""
        classes = np.concatenate([actions[:, 1] for actions in self.actions])
        return dict(zip(self.labels, np.bincount(classes, minlength=len(self.labels)).tolist(), strict=True))


Labelled = tuple[Game, tuple[LabelledAction, ...]]


def read_label_set(folder: Path) -> LabelSet:
    """Find the games of a folder and the class list of their labels.

    | files | classes |
    |---|---|
    | `matches.json` (simulated matches) | the ten actions; twelve if FREE KICK or GOAL occur |
    | `Labels-ball.json` of clips (SN-BAA) | the ten actions |
    | `Labels-ball.json` of games (SN-BAS) | twelve |
    | `Labels-v2.json` (SN-AS) | seventeen |
    | one other kind of `Labels*.json` | every label in them, in the order of the alphabet |

    A label that a known list does not have is an InputError with its place. The split of a game of SN-BAS or SN-AS is
    the folder on its path that is called train, valid, test or challenge, if there is one.
    """
    require_folder(folder)
    if (folder / MATCHES).is_file():
        found = _simulated(folder)
        classes = BALL_ACTIONS if _labels_of(found) - set(ACTIONS) else ACTIONS
        return _label_set(folder, classes, found)
    if splits := split_folders(folder):
        games = [game for split in splits for game in split_games(split)]
        events = [tuple(LabelledAction(e.label, e.position_ms) for e in game.events) for game in games]
        return _label_set(folder, ACTIONS, [(replace(g, events=()), e) for g, e in zip(games, events, strict=True)])
    files = sorted(folder.rglob("Labels*.json"), key=lambda path: natural(str(path)))
    names = {path.name for path in files}
    chosen = sorted(names & KNOWN.keys()) or sorted(names)
    if not chosen:
        raise InputError(f"{folder}: has no labels: no {MATCHES}, no {LABELS}, no {LABELS_V2}")
    if len(chosen) > 1:
        raise InputError(f"{folder}: has {' and '.join(chosen)}; give a folder with one of them")
    known = KNOWN.get(chosen[0])
    found = [game for path in files if path.name == chosen[0] for game in _soccernet(folder, path, known)]
    return _label_set(folder, known or sorted(_labels_of(found)), found)


def choose_label_sets(config: GamesConfig) -> list[LabelSet]:
    """Find the label sets of `config.also`, without games that are held out.

    Held out are games of a split valid, test or challenge, games that `config.valid` or `config.test` name, and videos
    that they hold out in `config.sources`.
    """
    if not config.also:
        return []
    sources = [game for source in config.sources for game in find_games(Path(source))]
    patterns = (*config.valid, *config.test)
    videos = {s.path.resolve() for game in choose(sources, patterns) for s in game.segments}
    sets: list[LabelSet] = []
    for source in config.also:
        found = read_label_set(Path(source))
        kept = [
            i
            for i, game in enumerate(found.games)
            if game.split not in SPLITS[1:]
            and not any(is_called(game, pattern) for pattern in patterns)
            and not videos & {s.path.resolve() for s in game.segments}
        ]
        if not kept:
            raise InputError(f"{source}: every game of it is held out; take it out of `also`")
        same = sum(Path(other).resolve().name == found.name for other in config.also[: len(sets)])
        sets.append(
            LabelSet(
                f"{found.name}-{same + 1}" if same else found.name,
                found.labels,
                tuple(found.games[i] for i in kept),
                tuple(found.actions[i] for i in kept),
            )
        )
    return sets


def _simulated(folder: Path) -> list[Labelled]:
    matches = matches_of(folder / MATCHES, _parser(BALL_ACTIONS))
    return [
        (Game(Path(video).stem, split, (VideoSegment(folder / video, 0, frames),), ()), actions)
        for video, split, frames, actions in matches
    ]


def _soccernet(folder: Path, labels: Path, known: Collection[str] | None) -> list[Labelled]:
    """Return the game beside a label file, or its halves."""
    split = next((part for part in labels.relative_to(folder.parent).parts if part in SPLITS), "")
    found = game_videos(labels, halves_of(labels, _parser(known)))
    return [(Game(name, split, segments, ()), actions) for name, segments, actions in found]


def _parser(known: Collection[str] | None) -> Callable[[Any], LabelledAction]:
    """Return a reader of one record; a label that is not in `known` is an error; None: all are taken."""

    def parse(record: Any) -> LabelledAction:
        label = get(record, "label", str, "text")
        if known is not None and label not in known:
            near = {name.upper(): name for name in known}
            like = get_close_matches(label.upper(), near, n=1)
            hint = f" (did you mean {near[like[0]]!r}?)" if like else f"; the labels are {', '.join(known)}"
            raise InputError(f"unknown label {label!r}{hint}")
        return LabelledAction(label, position_of(record))

    return parse


def _labels_of(found: Iterable[Labelled]) -> set[str]:
    return {action.label for _, actions in found for action in actions}


def _label_set(folder: Path, labels: Iterable[str], found: list[Labelled]) -> LabelSet:
    classes = tuple(labels)
    index: Mapping[str, int] = {label: i for i, label in enumerate(classes)}
    arrays = (
        np.array([(a.position_ms, index[a.label]) for a in actions], np.int64).reshape(-1, 2) for _, actions in found
    )
    return LabelSet(folder.resolve().name, classes, tuple(game for game, _ in found), tuple(arrays))

"""Simulate training matches: play Google Research Football, record it as a broadcast, label its ball actions.

    python -m tools.simulate OUT --matches 30 --seed 5001 --engine FOLDER
    python -m tools.simulate OUT --set e2e-test --engine FOLDER
    ballcast pretrain pretrain data.sources=[../shared/data/simbaa,OUT]

Both sides are played by the game's own AI. OUT gets, for each seed, match_NNNN.mp4 (398×224) and match_NNNN.npz
(the state of every step), and matches.json with the actions of all of them, as simbaa has it. What is played stays: the
same command goes on where it was killed. --matches 0 plays nothing and only labels the actions again, with the rules of
tools/simulation/actions.py. --check plays the matches that are there again, without pictures, and compares states and
labels. A match takes minutes, nearly all of it rendering, on about one core: with more cores run
it several times, with seeds apart.

The engine (gfootball_engine, Apache 2.0) is built from gfootball's source on PyPI for the Python that runs this:
docs/backbone.md, "More matches of your own", has the commands. It is looked for in --engine FOLDER, else in the folder
that BALLCAST_ENGINE names, else wherever Python looks; FOLDER is the one that holds gfootball_engine/.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ballcast.core.actions import FPS
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.files import check_writable
from ballcast.data.labels.games import MATCHES, Match, read_matches
from ballcast.video.container import MAX_GAP_S
from tools.simulation.compare import count_table, gap_table
from tools.simulation.engine import load_engine
from tools.simulation.fixture import SETS, Fixture
from tools.simulation.game import Game
from tools.simulation.matches import check_split, differences, is_played, label_matches, record, video_of

console = Console(highlight=False)
MINUTES = 5.0  # of a match


def simulate(out: Path, seeds: Sequence[int], *, engine: Path | None, steps: int, every: int, split: str) -> None:
    """Play the seeds that are not played yet, each of `steps` steps, label after each match, and show the progress."""
    check_split((video_of(out, seed) for seed in seeds), split)
    missing = [seed for seed in seeds if not is_played(video_of(out, seed))]
    if len(missing) < len(seeds):
        console.print(f"{len(seeds) - len(missing)} of {len(seeds)} matches are played already")
    if not missing:
        return
    check_writable(out / MATCHES)
    game = Game(load_engine(engine))
    with Progress(console=console) as bar:
        task = bar.add_task("", total=len(missing) * steps)
        for seed in missing:
            began, video = time.monotonic(), video_of(out, seed)
            bar.update(task, description=video.stem)
            record(game, Fixture.draw(seed), video, steps, every=every, tick=lambda: bar.advance(task))
            (match,) = (match for match in label_matches(out, split) if match.video == video.name)
            bar.console.print(f"{video.name}: {len(match.events)} actions, in {time.monotonic() - began:.0f} s")


def tell_all(out: Path, matches: Sequence[Match], other: Path | None) -> None:
    """What there is in OUT now, beside the training matches of another folder if there is one."""
    if other is not None:
        theirs = [match for match in read_matches(other / MATCHES) if match.split == "train"]
        for table in (count_table, gap_table):
            console.print(table(theirs, matches))
    actions = sum(len(match.events) for match in matches)
    console.print(f"{out / MATCHES}: {len(matches)} matches, {actions} actions", soft_wrap=True, markup=False)


def check(out: Path, seeds: Sequence[int], *, engine: Path | None) -> bool:
    """Play the matches of OUT again, without pictures; print and return whether states and labels are the same."""
    there = [seed for seed in seeds if is_played(video_of(out, seed))]
    if not there:
        raise InputError(f"{out}: has none of these matches; play them first")
    labelled = {match.video: match for match in read_matches(out / MATCHES)}
    game, same = Game(load_engine(engine)), True
    for seed in there:
        video = video_of(out, seed)
        found = differences(game, video, seed, labelled.get(video.name))
        console.print(f"{video.name}: {' and '.join(found) + ' differ' if found else 'states and labels are the same'}")
        same = same and not found
    return same


def chosen(given: argparse.Namespace) -> tuple[range, str]:
    """The seeds and the split that the options name."""
    if given.set is None:
        first, count = 5001 if given.seed is None else given.seed, 30 if given.matches is None else given.matches
        return range(first, first + count), given.split or "train"
    seeds, split = SETS[given.set]
    return (range(0) if given.matches == 0 else seeds), split


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the matches")
    parser.add_argument("--set", choices=SETS, help="all matches of a set that docs/ speaks of, in its split")
    parser.add_argument("--matches", type=int, help="how many, 30 by default; 0: only label anew")
    parser.add_argument("--seed", type=int, help="of the first, 5001 by default; a seed is a match")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a match, 5 by default")
    parser.add_argument("--every", type=int, default=2, help="a picture every so many frames; 2, as backbones look")
    parser.add_argument("--split", help="what all matches of OUT are for: train by default")
    engine = os.environ.get("BALLCAST_ENGINE") or None
    parser.add_argument("--engine", type=Path, default=engine, metavar="FOLDER", help="holds gfootball_engine/")
    parser.add_argument("--compare", type=Path, metavar="SIMBAA", help="show the actions beside those of its training")
    parser.add_argument("--check", action="store_true", help="play what is there again, without pictures, and compare")
    return parser


def main() -> None:
    parser = make_parser()
    given = parser.parse_args()
    steps = round(given.minutes * 60 * FPS)
    if (given.matches or 0) < 0 or (given.seed or 0) < 0 or steps < 1:
        parser.error("--matches and --seed must not be negative, --minutes must be positive")
    if not 1 <= given.every <= MAX_GAP_S * FPS:
        parser.error(f"--every must be from 1 to {MAX_GAP_S * FPS}: fewer pictures are no video")
    if given.set and (given.matches or given.seed is not None or given.split or given.minutes != MINUTES):
        parser.error("--set has its own --matches, --seed, --split and --minutes")
    seeds, split = chosen(given)
    try:
        if given.check:
            sys.exit(0 if check(given.out, seeds, engine=given.engine) else 1)
        simulate(given.out, seeds, engine=given.engine, steps=steps, every=given.every, split=split)
        tell_all(given.out, label_matches(given.out, split), given.compare)
    except BallcastError as error:
        sys.stderr.write(f"simulate: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("simulate: stopped; the same command goes on with the match that was being played\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

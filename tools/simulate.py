"""Simulate training matches: play Google Research Football, record it as a broadcast, label its ball actions.

    python -m tools.simulate OUT --matches 30 --seed 5001 --engine FOLDER
    ballcast pretrain pretrain data.sources=[../shared/data/simbaa,OUT]

Both sides are played by the game's own AI. OUT gets, for each seed, match_NNNN.mp4 (398×224) and match_NNNN.npz
(the state of every step), and matches.json with the actions of all of them, as simbaa has it. What is played stays: the
same command goes on where it was killed. --matches 0 plays nothing and only labels the actions again, with the rules of
tools/simulation/actions.py. A match takes minutes, nearly all of it rendering, on about one core: with more cores run
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
from ballcast.core.errors import BallcastError
from ballcast.core.files import check_writable
from ballcast.data.labels.games import MATCHES, Match, read_matches
from ballcast.video.container import MAX_GAP_S
from tools.simulation.compare import count_table, gap_table
from tools.simulation.engine import load_engine
from tools.simulation.fixture import Fixture
from tools.simulation.game import Game
from tools.simulation.matches import check_split, is_played, label_matches, record, video_of

console = Console(highlight=False)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the matches")
    parser.add_argument("--matches", type=int, default=30, help="how many, 30 by default; 0: only label anew")
    parser.add_argument("--seed", type=int, default=5001, help="of the first, 5001 by default; a seed is a match")
    parser.add_argument("--minutes", type=float, default=5.0, help="of a match, 5 by default")
    parser.add_argument("--every", type=int, default=2, help="a picture every so many frames; 2, as backbones look")
    parser.add_argument("--split", default="train", help="what all matches of OUT are for: train by default")
    engine = os.environ.get("BALLCAST_ENGINE") or None
    parser.add_argument("--engine", type=Path, default=engine, metavar="FOLDER", help="holds gfootball_engine/")
    parser.add_argument("--compare", type=Path, metavar="SIMBAA", help="show the actions beside those of its training")
    given = parser.parse_args()
    steps = round(given.minutes * 60 * FPS)
    if given.matches < 0 or given.seed < 0 or steps < 1:
        parser.error("--matches and --seed must not be negative, --minutes must be positive")
    if not 1 <= given.every <= MAX_GAP_S * FPS:
        parser.error(f"--every must be from 1 to {MAX_GAP_S * FPS}: fewer pictures are no video")
    seeds = range(given.seed, given.seed + given.matches)
    try:
        simulate(given.out, seeds, engine=given.engine, steps=steps, every=given.every, split=given.split)
        tell_all(given.out, label_matches(given.out, given.split), given.compare)
    except BallcastError as error:
        sys.stderr.write(f"simulate: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("simulate: stopped; the same command goes on with the match that was being played\n")
        sys.exit(130)


if __name__ == "__main__":
    main()

"""Film football matches for training: play Google Research Football, film it like television, label its ball actions.

    python -m tools.simulate OUT --set films-test --engine FOLDER     the matches of a set
    python -m tools.simulate OUT --matches 30 --seed 10001 --engine FOLDER
    python -m tools.simulate build FOLDER                             build the engine
    python -m tools.simulate bundle ARCHIVE --engine FOLDER           all in one archive, for a machine with a GPU
    python -m tools.simulate contacts IMAGE FILM…                     a contact sheet of films

Both sides are played by the game's own AI. OUT gets, for each seed, match_NNNN.mp4 (398×224, 12.5 pictures a second)
or, with --arrays, match_NNNN.npy (each picture as I420), match_NNNN.npz (the state of every step), and matches.json
with the actions of all of them. Finished matches stay, so the same command resumes where it was killed. A match that
cannot be filmed is reported and skipped. --matches 0 films nothing and only finds the actions again, with the rules of
tools/simulation/actions.py. --check plays the matches that are there again, without pictures, and compares states and
labels.

A seed determines a match and what its film looks like: tools/simulation/look.py lists all that is drawn. A match of
five minutes takes about two minutes of a core; --jobs films several at a time.

The engine is looked for in --engine FOLDER, else in the folder that BALLCAST_ENGINE names, else wherever Python looks;
FOLDER is the one that holds gfootball_engine/. docs/backbone.md, "More matches of your own", says more.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ballcast.core.actions import FPS
from ballcast.core.errors import BallcastError, InputError
from ballcast.core.files import check_writable
from ballcast.data.labels.games import read_matches
from ballcast.video.container import MAX_GAP_S
from tools.simulation import build, bundle, contact_sheet
from tools.simulation.compare import count_table, gap_table
from tools.simulation.crew import Crew, Shoot, exiting_on_sigterm
from tools.simulation.engine import add_engine_option, find_engine, load_engine
from tools.simulation.films import (
    LABELS,
    differences,
    film_of,
    find_films,
    is_complete,
    missing_seeds,
    read_labels,
    write_labels,
)
from tools.simulation.game import Game
from tools.simulation.seeds import SETS, check_split, split_of

console = Console(highlight=False)
COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "build": build.main,
    "bundle": bundle.main,
    "contacts": contact_sheet.main,
}
MINUTES = 5.0  # of a match
FIRST_SEED = 6001
MATCHES = 30


def film(shoot: Shoot, seeds: Sequence[int], *, split: str | None, jobs: int) -> list[int]:
    """Film the seeds that are not filmed yet, label each match when it is done, and return the seeds that failed."""
    missing = missing_seeds(shoot.out, seeds, shoot.kind, split)
    if len(missing) < len(seeds):
        console.print(f"{len(seeds) - len(missing)} of {len(seeds)} matches are filmed already")
    if not missing:
        return []
    failed = []
    with Progress(console=console) as bar:
        task = bar.add_task("filming", total=len(missing) * shoot.steps)
        done = dict.fromkeys(missing, 0)

        def show(seed: int, steps: int) -> None:
            done[seed] = steps
            bar.update(task, completed=sum(done.values()))

        for take in Crew(shoot, jobs).film(missing, show):
            show(take.seed, shoot.steps)
            if take.error is not None:
                failed.append(take.seed)
                bar.console.print(f"{take.film.name}: {take.error}; skipped", soft_wrap=True, markup=False)
                continue
            (entry,) = write_labels(shoot.out, [take.film], split)
            bar.console.print(f"{take.film.name}: {len(entry['actions'])} actions, in {take.seconds:.0f} s")
    return failed


def report(out: Path, other: Path | None) -> None:
    """Print what OUT holds now, beside the training matches of another folder if there is one."""
    matches = read_matches(out / LABELS)
    if other is not None:
        theirs = [match for match in read_matches(other / LABELS) if match.split == "train"]
        for table in (count_table, gap_table):
            console.print(table(theirs, matches))
    actions = sum(len(match.events) for match in matches)
    console.print(f"{out / LABELS}: {len(matches)} matches, {actions} actions", soft_wrap=True, markup=False)


def label_again(out: Path, split: str | None) -> None:
    """Find the actions of all films of OUT again."""
    films = find_films(out)
    if not films:
        raise InputError(f"{out}: has no films, that is no match_NNNN.mp4 with its match_NNNN.npz; make some first")
    write_labels(out, films, split)


def check(out: Path, seeds: Sequence[int], *, kind: str, engine: Path) -> bool:
    """Play the matches of OUT again, without pictures; print and return whether states and labels are the same."""
    films = [film for film in (film_of(out, seed, kind) for seed in seeds) if is_complete(film)]
    if not films:
        raise InputError(f"{out}: has none of these matches; film them first")
    labels, game, same = read_labels(out), Game(load_engine(engine)), True
    for film in films:
        entry = labels.get(film.name)
        found = differences(game, film, entry["actions"] if entry else None)
        console.print(f"{film.name}: {' and '.join(found) + ' differ' if found else 'states and labels are the same'}")
        same = same and not found
    return same


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the films (a folder named build: ./build)")
    parser.add_argument("--set", choices=SETS, help="all matches of a set that docs/ describes, in its split")
    parser.add_argument("--matches", type=int, help=f"how many, {MATCHES} by default; 0 only labels again")
    parser.add_argument("--seed", type=int, help=f"of the first match, {FIRST_SEED} by default")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of a match, 5 by default")
    parser.add_argument("--every", type=int, default=2, help="frames from one picture to the next, 2 by default")
    parser.add_argument("--arrays", action="store_true", help="arrays for training instead of videos")
    parser.add_argument("--split", help="of the matches; by default that of their seeds, which is train for most")
    parser.add_argument("--jobs", type=int, default=1, help="matches at a time, 1 by default")
    add_engine_option(parser)
    parser.add_argument("--compare", type=Path, metavar="SIMBAA", help="show the actions beside those of its training")
    parser.add_argument("--check", action="store_true", help="play what is there again and compare")
    return parser


def run(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Do what the options ask for; returns the exit code."""
    options = parser.parse_args(words)
    steps = round(options.minutes * 60 * FPS)
    if (options.matches or 0) < 0 or (options.seed or 0) < 0 or options.jobs < 1 or steps < 1:
        parser.error("--matches and --seed must not be negative, --jobs and --minutes must be positive")
    if not 1 <= options.every <= MAX_GAP_S * FPS:
        parser.error(f"--every must be from 1 to {MAX_GAP_S * FPS}: fewer pictures are no video")
    if options.set and (options.matches or options.seed is not None or options.split or options.minutes != MINUTES):
        parser.error("--set has its own --matches, --seed, --split and --minutes")
    seeds, split = chosen(options)
    kind = "npy" if options.arrays else "mp4"
    if options.check:
        return 0 if check(options.out, seeds, kind=kind, engine=find_engine(options.engine)) else 1
    if options.matches == 0:
        label_again(options.out, split)
        report(options.out, options.compare)
        return 0
    for seed in seeds:
        check_split([seed], split or split_of(seed))
    shoot = Shoot(options.out, find_engine(options.engine), steps, options.every, kind)
    check_writable(options.out / LABELS)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = film(shoot, seeds, split=split, jobs=options.jobs)
    if find_films(options.out):
        report(options.out, options.compare)
    if failed:
        names = ", ".join(map(str, failed))
        sys.stderr.write(f"simulate: {len(failed)} of {len(seeds)} matches could not be filmed: {names}\n")
    return 1 if failed else 0


def chosen(options: argparse.Namespace) -> tuple[range, str | None]:
    """The seeds and the split that the options name; None for the splits of the seeds."""
    if options.set is not None:
        return SETS[options.set]
    first = FIRST_SEED if options.seed is None else options.seed
    return range(first, first + (MATCHES if options.matches is None else options.matches)), options.split


def main() -> None:
    words = sys.argv[1:]
    try:
        if words and words[0] in COMMANDS:
            COMMANDS[words[0]](words[1:])
            return
        with exiting_on_sigterm():
            code = run(make_parser(), words)
    except BallcastError as error:
        sys.stderr.write(f"simulate: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("simulate: stopped; the same command resumes with the matches that were being filmed\n")
        sys.exit(130)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()

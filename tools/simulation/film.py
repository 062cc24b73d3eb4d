"""Film one match, in a process of its own: the engine reads a match's look once, when it is loaded.

    python -m tools.simulation.film OUT SEED --engine FOLDER --scratch FOLDER [--steps N] [--every N] [--kind mp4|npy]

Prints `progress N` after every second of the match; `crew.py` runs it for many matches.
"""

import argparse
import os
import sys
from pathlib import Path

from ballcast.core.actions import FPS
from ballcast.core.errors import BallcastError
from tools.simulation.arrays import filming_array
from tools.simulation.crew import exiting_on_sigterm
from tools.simulation.develop import Developer
from tools.simulation.engine import NAME, load_engine
from tools.simulation.engine_data import write_engine_data
from tools.simulation.films import KINDS, Sink, film_of, record
from tools.simulation.fixture import Fixture
from tools.simulation.game import Game, picture_frames
from tools.simulation.look import Look

FONT = Path("fonts") / "AlegreyaSansSC-ExtraBold.ttf"  # in the engine's folder


def film_match(out: Path, seed: int, *, engine: Path, scratch: Path, steps: int, every: int, kind: str) -> None:
    """Film a match; call it once in a process, before the engine is imported.

    Args:
        out: a folder that exists.
        engine: the folder that holds gfootball_engine/.
        scratch: an empty folder for the engine's data with the match's look, about 70 MB; the caller removes it.
        kind: "mp4", or "npy" for an array.
    """
    look = Look.draw(seed)
    package = engine / NAME
    write_engine_data(look, package / "data", package / FONT, scratch)
    os.environ.update(look.environment())
    os.environ["GFOOTBALL_DATA_DIR"] = str(scratch)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if done % FPS == 0 or done == steps:
            print(f"progress {done}", flush=True)  # noqa: T201

    record(
        Game(load_engine(engine)),
        Fixture.draw(seed),
        film_of(out, seed, kind),
        steps,
        every=every,
        sink=_sink(kind, look, len(picture_frames(steps, every))),
        develop=Developer(look, package / FONT).develop,
        tick=tick,
    )


def _sink(kind: str, look: Look, pictures: int) -> Sink:
    if kind == "npy":
        return lambda path: filming_array(path, pictures)
    from tools.simulation.broadcast import filming  # PyAV is not there where only arrays are made

    return lambda path: filming(path, crf=look.exposure.crf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, default="mp4")
    try:
        with exiting_on_sigterm():
            film_match(**vars(parser.parse_args()))
    except (BallcastError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""What is fuzzed: a kind of file, how real ones are spoilt, and the code that must stand them."""

import random
import shutil
from pathlib import Path

from tools.fuzzing.mutate import Mutation, mutate_json


class Target:
    """One kind of file. Made with an empty folder of its own, where it lays out what it needs.

    Attributes:
        kind: the family it belongs to, for --kind.
        suffix: of the spoilt file's name.
        seeds: whole files, small ones.
        commanded: the share of cases that go through the command line.
        seconds: a case that takes longer hangs.
        place: the file's name in `home`, if it is one of several that belong together.
        home: the folder of these.
    """

    kind = ""
    suffix = ".json"
    commanded = 0.033
    seconds = 10
    place = ""
    mutation: Mutation = staticmethod(mutate_json)

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.seeds: list[bytes] = []
        self.prepare()
        if self.place:
            self.seeds.append((self.home / self.place).read_bytes())

    def prepare(self) -> None:
        """Make the seeds, or `home`."""

    def mutate(self, rng: random.Random) -> bytes:
        """A spoilt file."""
        return type(self).mutation(rng.choice(self.seeds), rng)

    def at_home(self, path: Path) -> Path:
        """A copy of `home` with the spoilt file at `path` in its place."""
        folder = path.parent / "spoilt"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.home, folder)
        shutil.copyfile(path, folder / self.place)
        return folder

    def drive(self, path: Path, out: Path) -> None:
        """Read the file as ballcast's commands would, and write what they would below the empty folder `out`."""
        raise NotImplementedError

    def command(self, path: Path, out: Path) -> list[str]:
        """The arguments of a `ballcast` command that reads the file; none: there is none."""
        return []

"""What is fuzzed: a kind of file, how real ones are spoilt, and the code that must stand them."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from ballcast.core.checks import CHECKSUM_KEY, KEY
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
        signed: leave the checksums there, which refuse nearly every spoilt file before it is read.
    """

    kind = ""
    suffix = ".json"
    commanded = 0.033
    seconds = 10
    place = ""
    signed = False
    mutation: Mutation = staticmethod(mutate_json)

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        self.seeds: list[bytes] = []
        self.prepare()
        if self.place:
            if not self.signed:
                strip_checksums(self.home)
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


def strip_checksums(home: Path) -> None:
    """Make the files those of a version without checksums: else only the checksums would be fuzzed."""
    for path in home.rglob("*.json"):
        tree = json.loads(path.read_bytes())
        if isinstance(tree, dict):
            path.write_text(json.dumps(_without(tree), indent=1))
    for path in home.rglob("*.safetensors"):
        raw = path.read_bytes()
        length = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:length])
        if not header.get("__metadata__", {}).pop(CHECKSUM_KEY, None):
            continue
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[length:])


def _without(tree: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if key not in (KEY, CHECKSUM_KEY)}
    if isinstance(kept.get("shards"), list):
        kept["shards"] = [{k: v for k, v in shard.items() if k != "sha256"} for shard in kept["shards"]]
    return kept

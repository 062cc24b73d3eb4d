"""Flip one random bit in a file of every kind that ballcast writes, and read it with the command that uses it.

A flip is noticed if the command refuses the file, with exit code 2 and one sentence that names it, or makes it again:
its output is then, byte for byte, that of an undisturbed run. Some bits of a zip mean nothing; its files are then the
same. Not covered are files for people, which nothing reads or
which may be edited: config.yaml, CSV, Markdown, HTML, labels, forecasts along a video, overlays, environment.json,
TensorBoard's files.
"""

import random
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fault_jobs import CPU, Job, jobs
from benchmarks.fault_runs import RENAMES, Place, differences, ended

Reader = Callable[[Path], list[str]]  # the command that reads a file, by its path


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        name: of the kind.
        verb: the command that writes it.
        pattern: of its path below the command's folder.
        reader: the command that reads it; None: the one that writes it, run again.
        stop: the share of the renames after which the writing command is killed; None: it comes to its end.
    """

    name: str
    verb: str
    pattern: str
    reader: Reader | None = None
    stop: float | None = None


def kinds(folder: Path) -> list[Kind]:
    """Every kind, with the inputs that `fault_jobs.prepare` wrote in `folder`."""

    def predict(model: Path, store: Path) -> list[str]:
        return ["predict", "--model", str(model), "--features", str(store), "-o", str(folder / "flipped.json"), *CPU]

    def verify(path: Path) -> list[str]:
        return ["data", "verify", str(path.parent)]

    def video(path: Path) -> list[str]:
        out = ["-o", str(folder / "flipped.json"), "--any-video"]
        return ["predict", str(folder / "match.mp4"), "--model", str(path.parent), *out, *CPU]

    def extract(path: Path) -> list[str]:
        out = str(folder / "flipped")
        return ["extract", str(folder / "videos"), out, "--backbone", str(path.parent), "--workers", "1", *CPU]

    def trained(path: Path) -> list[str]:
        return predict(path.parent, folder / "features" / "valid")

    def stored(path: Path) -> list[str]:
        return predict(folder / "model", path.parent)

    def grid(path: Path) -> list[str]:
        return predict(folder / "of events", path.parent)

    def submission(path: Path) -> list[str]:
        return ["submit", "--check", str(path), "--labels", str(folder / "snbaa" / "224p" / "test")]

    shard, weights, config = "shard-*.safetensors", "best/model.safetensors", "best/config.json"
    return [
        Kind("shard of a store", "extract", shard, stored),
        Kind("manifest of a store", "extract", "manifest.json", stored),
        Kind("piece of an extraction", "extract", "parts/*.safetensors", stop=0.6),
        Kind("header of the pieces", "extract", "parts/header.json", stop=0.6),
        Kind("state of a run", "train", "state.safetensors", stop=0.6),
        Kind("weights of a model", "train", weights, trained),
        Kind("config of a model", "train", config, trained),
        Kind("weights of a backbone", "pretrain", weights, extract),
        Kind("config of a backbone", "pretrain", config, extract),
        Kind("calibration", "tune", "calibration.json", lambda path: predict(path.parent, folder / "features/tuned")),
        Kind("expected precision", "tune", "precision.json", verify),
        Kind("shard of event windows", "events", f"valid/{shard}", grid),
        Kind("samples of event windows", "events", "valid/windows.npz", grid),
        Kind("record of a conversion", "events", ".events.json", stop=0.6),
        Kind("graph of an export", "export", "*.onnx", video),
        Kind("config of an export", "export", "config.json", video),
        Kind("unfinished forecasts", "predict", "out.json.part", stop=0.7),
        Kind("graph in the cache", "predict", "../cache/*/*/*.onnx", stop=0.7),
        Kind("config in the cache", "predict", "../cache/*/*/config.json", stop=0.7),
        Kind("zip that is fetched", "download", "224p/.train.*.zip.part", stop=0.0),
        Kind("zip that was fetched", "download", "224p/.train.*.zip", stop=0.05),
        Kind("unpacked so far", "download", "224p/.train.*.tree/*/*.mp4", stop=0.6),
        Kind("list of a download", "download", "224p/train/.ballcast-download.json"),
        Kind("downloaded video", "download", "224p/train/*/*.mp4", lambda path: verify(path.parent)),
        Kind("scores", "reproduce", "scores/*.json"),
        Kind("list of submissions", "reproduce", "submissions/submissions.json"),
        Kind("submission", "reproduce", "submissions/*-test-*.zip", submission),
        Kind("table", "reproduce", "table.json"),
    ]


def flip_often(folder: Path, flips: int, rng: random.Random, only: list[str] | None) -> int:
    """Flip so many bits of each kind; print how many were noticed, and return how many were not."""
    by_name = {job.name: job for job in jobs(folder)}
    missed = 0
    for kind in kinds(folder):
        if only and kind.verb not in only:
            continue
        base = Base(by_name[kind.verb], folder, kind.stop)
        counts = {"refused": 0, "made again": 0, "without effect": 0, "not noticed": 0}
        for _ in range(flips):
            how, about = base.flip(kind, rng)
            counts[how] += 1
            if how == "not noticed":
                print(f"{kind.name}: {about}", flush=True)
        missed += counts["not noticed"]
        print(f"{kind.name}: {flips} flips: " + ", ".join(f"{n} {how}" for how, n in counts.items()), flush=True)
    return missed


class Base:
    """What a command leaves, at its end or killed after a share of its renames: made once, and copied for each flip."""

    def __init__(self, job: Job, folder: Path, stop: float | None) -> None:
        self.job, self.place = job, Place(job, folder / f"{job.name} flipped")
        kept = folder / f"{job.name} whole"
        if not kept.is_dir():
            self.place.clear()
            self.place.finish()
            shutil.copytree(self.place.disk, kept, symlinks=True)
            shutil.copy(self.place.folder / RENAMES, kept.with_suffix(".renames"))
        self.kept, self.whole = kept, _contents(self.place, kept)
        if stop is not None:
            self.kept = folder / f"{job.name} stopped at {stop}"
            number = int(int(kept.with_suffix(".renames").read_text()) * stop)
            self._stop(number)

    def _stop(self, number: int) -> None:
        """Keep what a run leaves that is killed after so many renames; 0: before the first."""
        if self.kept.is_dir():
            return
        self.place.clear()
        ended(self.place.start(strike=(max(number, 1), number > 0)), 600)
        shutil.copytree(self.place.disk, self.kept, symlinks=True)

    def flip(self, kind: Kind, rng: random.Random) -> tuple[str, str]:
        """Flip a bit of one file; returns how it was noticed, and what was printed."""
        place = self.place
        shutil.rmtree(place.disk)
        shutil.copytree(self.kept, place.disk, symlinks=True)
        found = sorted(path for path in place.out.glob(kind.pattern) if path.is_file())
        if not found:
            sys.exit(f"{kind.name}: no {kind.pattern} among {sorted(map(str, place.out.rglob('*')))[:20]}")
        path = rng.choice(found)
        raw, bit = bytearray(path.read_bytes()), rng.randrange(8 * path.stat().st_size)
        raw[bit // 8] ^= 1 << bit % 8
        path.write_bytes(raw)
        code = ended(place.start(None if kind.reader is None else kind.reader(path)), 600)
        printed = place.log.read_text()
        sentences = list(_sentences(printed))
        about = f"{path.name}: bit {bit}: exit code {code}: {printed[-400:]}"
        if code == 2 and len(sentences) == 1 and path.name.strip(".").split(".")[0] in sentences[0]:
            return ("not noticed" if "Traceback" in printed else "refused"), about
        if code == 0 and kind.reader is None and not (wrong := differences(place.contents(), self.whole)):
            return "made again", about
        if path.suffix == ".zip" and _members(path) == _members(self.kept / path.relative_to(place.disk)):
            return "without effect", about
        return "not noticed", f"{about} {wrong if code == 0 and kind.reader is None else ''}"


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _contents(place: Place, kept: Path) -> dict[str, bytes]:
    return Place(place.job, place.folder, kept).contents()


def _sentences(printed: str) -> Iterator[str]:
    """Errors of the command line, and the lines of `ballcast data verify`."""
    for line in printed.splitlines():
        if re.match(r"ballcast: (?!note: )", line) or "make or fetch it again" in line:
            yield line

"""Kill extract, pretrain and train with SIGKILL at random times, let them go on, and compare what they leave.

    python -m benchmarks.kills [--kills 50] [--renames 20] [--only extract|pretrain|train] [--seed 0]

Each command runs once without being disturbed, T seconds. Then it is started and killed at a time drawn from 0 … T,
started again in the same folder, and so on until it ends before that time; that folder must then hold the same
files with the same bytes as the undisturbed one. New folders follow until there have been so many kills. Besides,
`--renames` more kills strike right before or after a rename, drawn from all of a run's, where a torn write would show.

After every kill, whatever file is there must be whole: JSON that parses, safetensors that open, CSV that ends its line.
Not compared are times: seconds in epochs.csv and report.json, TensorBoard, environment.json.

Commands run in forked processes that have torch imported already, so that kills hit the work, not its start.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from safetensors import safe_open

# What the commands import when they are called, imported once for all of them.
from ballcast.cli import main as ballcast_main
from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.config import to_yaml
from ballcast.core.pretrain_config import PretrainConfig
from ballcast.features.backbone import Backbone

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from games import draw_game, make_events, make_matches, write_video
from synthetic import SMALL, make_split

TINY = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4)
RENAMES = "renames.txt"
TIMED = ("environment.json",)  # and TensorBoard's files


@dataclass(frozen=True)
class Job:
    """A command of which `arguments(out)` gives the arguments."""

    name: str
    arguments: Callable[[Path], list[str]]


def prepare(folder: Path) -> list[Job]:
    """Videos, games, features and recipes, small enough for runs of a few seconds."""
    videos = folder / "videos"
    for n in range(4):
        write_video(videos / f"match_{n}.mp4", draw_game(900, make_events(900, seed=n), seed=n))
    torch.manual_seed(0)
    Backbone(TINY, name="tiny").save_pretrained(folder / "backbone")
    make_matches(folder / "games", ("train", "valid", "test"), frames=300)
    for split, clips in (("train", 24), ("valid", 8)):
        make_split(folder / "features" / split, clips, seed=clips)
    (folder / "recipe.yaml").write_text(to_yaml(Recipe()))
    (folder / "pretrain.yaml").write_text(to_yaml(PretrainConfig()))
    return jobs(folder)


def jobs(folder: Path) -> list[Job]:
    network = [
        f"backbone.{key}={getattr(TINY, key)}" for key in ("encoder", "channels", "blocks", "projected", "se_ratio")
    ]
    games = [f"data.sources=[{folder / 'games'}]", "data.train=[train]", "data.valid=[valid]", "data.test=[test]"]
    pretrain = [*network, *games, "train.start=scratch", "train.epochs=3", "train.steps=6", "train.save_every=2"]
    pretrain += ["clips.batch=4", "clips.run=2", "train.ema=0.9", "data.workers=1"]
    train = [
        *SMALL,
        f"data.features={folder / 'features'}",
        "data.train=[train]",
        "data.valid=[valid]",
        "train.ema=0.9",
    ]
    train += ["train.epochs=5", "train.batch=4", "train.save_every=2", "train.compile=false"]
    cpu = ["--device", "cpu"]
    extract = [str(folder / "videos"), "--backbone", str(folder / "backbone"), "--workers", "1", "--every", "50", *cpu]
    return [
        Job("extract", lambda out: ["extract", extract[0], str(out), *extract[1:]]),
        Job("pretrain", lambda out: ["pretrain", str(folder / "pretrain.yaml"), *pretrain, "--out", str(out), *cpu]),
        Job("train", lambda out: ["train", str(folder / "recipe.yaml"), *train, "--out", str(out), *cpu]),
    ]


def fork(work: Callable[[], Any], log: Path) -> int:
    """The id of a process that does the work, quietly, with status 0 if it succeeds."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        torch.set_num_threads(1)
        work()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def start(job: Job, out: Path, *, strike: tuple[int, bool] = (0, False)) -> int:
    """The command in a process of its own; `strike`: killed by its own hand at rename number n, before or after it.

    The number of renames it has made is written beside `out`.
    """

    def work() -> None:
        count_renames(strike, out.parent / RENAMES)
        ballcast_main(job.arguments(out))

    return fork(work, out.parent / "log.txt")


def count_renames(strike: tuple[int, bool], count_file: Path) -> None:
    number, after = strike
    rename, done = os.replace, 0

    def replace(source: Any, target: Any) -> None:
        nonlocal done
        done += 1
        count_file.write_text(str(done))
        if done == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]


def ended(child: int, within: float) -> int | None:
    """The exit code of a process that ends within so many seconds; None: it runs."""
    until = time.monotonic() + within
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(min(0.002, max(0.0, until - time.monotonic())))


def contents(out: Path) -> dict[str, bytes]:
    """Everything below `out`, and what lies beside it under its name, that must not depend on kills."""
    files = [p for p in out.rglob("*") if p.is_file() and "tensorboard" not in p.parts and p.name not in TIMED]
    files += out.parent.glob(f".{out.name}*")
    return {str(p.relative_to(out.parent)): _timeless(p) for p in files}


def _timeless(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.name == "epochs.csv":  # its second column is seconds
        return b"\n".join(b",".join(c for i, c in enumerate(row.split(b",")) if i != 1) for row in raw.split(b"\n"))
    if path.name == "report.json":
        return json.dumps({**json.loads(raw), "seconds": 0}).encode()
    return raw


def torn(out: Path) -> Iterator[str]:
    """Files that a kill left half, but for those under temporary names."""
    for path in out.rglob("*"):
        if not path.is_file() or path.name.endswith(".tmp"):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    file.keys()
            elif path.suffix in (".csv", ".html", ".yaml") and not path.read_bytes().endswith((b"\n", b">")):
                raise ValueError("its end is missing")
        except Exception as error:
            yield f"{path.name}: {error}"


@dataclass
class Account:
    """How one command fared."""

    kills: int = 0
    runs: int = 0  # that came to their end after being killed
    differences: int = 0

    def check(self, job: Job, out: Path, whole: dict[str, bytes]) -> None:
        found = contents(out)
        wrong = sorted(k for k in whole.keys() | found.keys() if whole.get(k) != found.get(k))
        self.runs += 1
        self.differences += len(wrong)
        for name in wrong:
            lost = "missing" if name not in found else "left over" if name not in whole else "different"
            print(f"{job.name}: {name}: {lost}", flush=True)

    def check_torn(self, job: Job, out: Path) -> None:
        for what in torn(out):
            self.differences += 1
            print(f"{job.name}: torn: {what}", flush=True)


def finish(job: Job, out: Path) -> None:
    code = ended(start(job, out), 600)
    if code != 0:
        sys.exit(f"{job.name}: exit code {code}: {(out.parent / 'log.txt').read_text()[-2000:]}")


def kill_often(job: Job, folder: Path, kills: int, renames: int, rng: random.Random) -> Account:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    account, out = Account(), folder / "run"
    began = time.monotonic()
    finish(job, out)
    seconds, whole, most = time.monotonic() - began, contents(out), int((folder / RENAMES).read_text())
    print(f"{job.name}: {seconds:.1f} s without a kill, {most} renames, {len(whole)} files to compare", flush=True)
    while account.kills < kills:
        shutil.rmtree(out)
        while account.kills < kills:
            child = start(job, out)
            code = ended(child, rng.uniform(0, seconds))
            if code is not None:
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            account.kills += 1
            account.check_torn(job, out)
        finish(job, out)
        account.check(job, out, whole)
    for _ in range(renames):
        shutil.rmtree(out)
        code = ended(start(job, out, strike=(rng.randint(1, most), rng.random() < 0.5)), 600)
        account.kills += code == -signal.SIGKILL
        account.check_torn(job, out)
        finish(job, out)
        account.check(job, out, whole)
    return account


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="at random times, of each command")
    parser.add_argument("--renames", type=int, default=20, help="more, right at renames")
    parser.add_argument("--only", choices=("extract", "pretrain", "train"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    total = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if ended(fork(lambda: prepare(folder), folder / "log.txt"), 600) != 0:
            sys.exit((folder / "log.txt").read_text())
        for job in jobs(folder):
            if given.only in (None, job.name):
                rng = random.Random(f"{given.seed} {job.name}")
                account = kill_often(job, folder / job.name, given.kills, given.renames, rng)
                total += account.differences
                summary = f"{account.kills} kills, {account.runs} runs that went on to their end"
                print(f"{job.name}: {summary}: {account.differences} differences", flush=True)
    print(f"{total} differences in all")
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()

"""Let the disk be full while a command writes: a real file system of a random size, so that any write may fail.

The command's folder and its folder of temporary files lie on a tmpfs. An undisturbed run shows how much it needs at
most; then the file system gets a random size below that. The command must end with exit code 2 and one sentence that
names a file and says what to do, without a traceback, a torn file or a leftover. With room again, the same command must
end with the bytes of the undisturbed run. Needs the right to mount.
"""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.fault_jobs import Job
from benchmarks.fault_runs import Place, differences, ended, torn

PAGE = 4096
ROOM = 1 << 30
TRIES = 4  # runs for each that is disturbed: with a size close to what is needed, some end well


def fill_often(job: Job, folder: Path, times: int, rng: random.Random) -> int:
    """Let the disk be full so many times; print what is wrong, and return how many times something was."""
    folder.mkdir(exist_ok=True)
    with small_disk(folder / "disk") as disk:
        place = Place(job, folder)
        place.clear()
        begin, peak = _used(disk), 0

        def watch() -> None:
            nonlocal peak
            peak = max(peak, _used(disk))

        if ended(place.start(), 600, watch) != 0:
            sys.exit(f"{job.name}: {place.log.read_text()[-2000:]}")
        whole, bad, full, tried = place.contents(), 0, 0, 0
        print(f"{job.name}: {peak - begin} bytes of disk without a fault", flush=True)
        while full < times and tried < TRIES * times:
            tried += 1
            place.clear()
            resize(disk, _used(disk) + PAGE * rng.randint(1, max(1, (peak - begin) // PAGE)))
            code = ended(place.start(), 600)
            wrong = [] if code == 0 else [*judge(place, code), *place.leftovers(partial=True)]
            resize(disk, ROOM)
            full += code != 0
            if code == 0:
                wrong += differences(place.contents(), whole)
            elif code_again := ended(place.start(), 600):
                wrong.append(f"with room again: exit code {code_again}: {place.log.read_text()[-300:]}")
            else:
                wrong += [*differences(place.contents(), whole), *place.leftovers()]
            bad += bool(wrong)
            for what in wrong:
                print(f"{job.name}: {what}", flush=True)
    print(f"{job.name}: the disk was full {full} times, in {tried} runs: {bad} with a fault", flush=True)
    return bad


def judge(place: Place, code: int | None) -> Iterator[str]:
    """What is wrong with a command that found the disk full."""
    printed = place.log.read_text()
    sentences = re.findall(r"^ballcast: (?!note: ).*", printed, re.MULTILINE)
    if code != 2 or "Traceback" in printed:
        yield f"exit code {code}: {printed[-1500:]}"
    elif len(sentences) != 1 or str(place.disk) not in sentences[0]:
        yield f"not one sentence with a file: {printed[-500:]}"
    elif not re.search("the disk is full|but only .* are free", sentences[0]):
        yield f"does not say that the disk is full: {sentences[0]}"
    yield from (f"torn: {what}" for what in torn(place.out))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own at `folder`, with room until it is resized."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "ballcast", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def _used(disk: Path) -> int:
    return shutil.disk_usage(disk).used

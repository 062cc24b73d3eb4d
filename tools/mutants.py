"""Mutation testing, `make mutants`: time-boxed, resumable, in a seeded random order; then the score of each module.

mutmut makes the mutants and runs the tests of each (settings: `[tool.mutmut]` in pyproject.toml). What it cannot do is
done here: stop after some minutes, draw at random instead of trying the quickest first, try survivors again after tests
were changed, and print a score by module. Results are kept in `mutants/`; remove the folder to start anew.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path("mutants")
FIRST = "ballcast.metrics.ranked.*"  # the smallest module: a first call, in which mutmut makes the mutants of all
TOGETHER = 400  # mutants a call of mutmut; each call runs the tests unchanged first
KILLED, SURVIVED, UNTESTED, TIMEOUT, UNTRIED = "killed", "survived", "no tests", "timeout", "not tried"
VERDICTS = {0: SURVIVED, 1: KILLED, 3: KILLED, 5: UNTESTED, 33: UNTESTED}  # exit codes of pytest, and mutmut's own
VERDICTS |= dict.fromkeys((None, 2, -2, -15), UNTRIED)  # or stopped while it was
AGAIN = (SURVIVED, UNTESTED)  # worth another try once the tests have changed


def verdict(code: int | None) -> str:
    """What an exit code of the tests says of the mutant; a crash counts as a timeout."""
    return VERDICTS.get(code, TIMEOUT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of pytest: the quickest tests first."""
    stats = Path("mutmut-stats.json")  # the tests run in `mutants/`
    seconds = json.loads(stats.read_text())["duration_by_test"] if stats.exists() else {}
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    for item in items:
        if not hasattr(item, "_nodeid"):  # mutmut 3.8 reads it, pytest 9.2 no longer has it
            item._nodeid = item.nodeid  # type: ignore[attr-defined]
    gc.freeze()  # a forked process that collects garbage would copy all of torch


def results() -> dict[str, dict[str, int | None]]:
    """The exit code of the tests by mutant, by module; None: not tried yet."""
    found = {}
    for file in sorted(FOLDER.glob("src/**/*.py.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        if codes:
            found[str(file.relative_to(FOLDER / "src/ballcast"))[: -len(".meta")]] = codes
    return found


def remove_torn() -> None:
    """Remove what a kill left half written, so that mutmut makes it again instead of taking it for finished."""
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
    for source in (path for pattern in patterns for path in Path().glob(pattern)):
        made = FOLDER / source
        meta, spans = made.with_name(f"{made.name}.meta"), made.with_name(f"{made.name}.spans")
        try:
            json.loads(meta.read_text())
            torn = made.stat().st_mtime > spans.stat().st_mtime  # the last that mutmut writes of a module
        except FileNotFoundError:
            torn = True
        except ValueError:
            torn = True
            meta.unlink()
        if torn:
            made.unlink(missing_ok=True)


def forget_survivors() -> None:
    """Have survivors tried again if the tests changed since the last call."""
    digest = hashlib.sha256()
    for file in sorted(Path("tests").rglob("*.py")):
        digest.update(file.read_bytes())
    mark = FOLDER / "tests.sha256"
    if mark.exists() and mark.read_text() != digest.hexdigest():
        for file in FOLDER.glob("src/**/*.py.meta"):
            meta = json.loads(file.read_text())
            codes = meta["exit_code_by_key"]
            meta["exit_code_by_key"] = {k: None if verdict(c) in AGAIN else c for k, c in codes.items()}
            file.write_text(json.dumps(meta, indent=4))
    mark.write_text(digest.hexdigest())


def restore(before: dict[Path, str]) -> None:
    """Write the results as they were where mutmut was stopped while it wrote them."""
    for file, text in before.items():
        try:
            json.loads(file.read_text())
        except ValueError:
            file.write_text(text)


def run(names: list[str], until: float, children: int) -> bool:
    """Try some mutants; whether there was time for all."""
    mutmut = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(children), *names]
    before = {file: file.read_text() for file in FOLDER.glob("src/**/*.py.meta")}
    with (FOLDER / "run.log").open("w") as log:
        # Plugins of pytest that are installed cost a quarter of a second a mutant, and no test needs one.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        process = subprocess.Popen(mutmut, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait(timeout=max(until - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            restore(before)
            return False
    if code:
        sys.exit(f"mutmut failed with exit code {code}; its output is in {FOLDER / 'run.log'}")
    return True


def report(survivors: bool) -> str:
    """A table with a row for each module; if asked for, after a list of the survivors."""
    head = ("mutants", "tried", KILLED, TIMEOUT, SURVIVED, UNTESTED, "score")
    lines, total = [f"{'module':32}" + "".join(f"{word:>10}" for word in head)], Counter[str]()
    for module, codes in [*results().items(), ("all", None)]:
        count = total if codes is None else Counter(verdict(c) for c in codes.values())
        total = total + count
        tried = count.total() - count[UNTRIED]
        share = f"{100 * (count[KILLED] + count[TIMEOUT]) / max(tried, 1):.1f} %"
        row = (count.total(), tried, count[KILLED], count[TIMEOUT], count[SURVIVED], count[UNTESTED], share)
        lines.append(f"{module:32}" + "".join(f"{value:>10}" for value in row))
        if survivors and codes:
            lines[:0] = [f"{verdict(code)}: {name}" for name, code in codes.items() if verdict(code) in AGAIN]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="stop after so many minutes")
    parser.add_argument("--children", type=int, default=1, help="mutants at a time")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which mutants are tried")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    parser.add_argument("--survivors", action="store_true", help="list them; `mutmut show NAME` prints one")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, also by mutmut
    FOLDER.mkdir(exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    remove_torn()
    forget_survivors()
    going = bool(results()) or run([FIRST], until, options.children)
    while going:
        # A name's place depends on seed and name only, so what was tried after any time is a random sample.
        names = (name for codes in results().values() for name, code in codes.items() if verdict(code) == UNTRIED)
        left = [name for name in names if options.only in name]
        left.sort(key=lambda name: random.Random(f"{options.seed} {name}").random())
        going = bool(left) and until > time.monotonic() and run(left[:TOGETHER], until, options.children)
    sys.stdout.write(report(options.survivors))


if __name__ == "__main__":
    main()

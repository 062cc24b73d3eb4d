"""Commands as a reader types them, run here or checked to be understood."""

import argparse
import importlib
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from docs.pages import ROOT
from docs.world import SMALL_BACKBONE, SMALL_MODEL
from typer.testing import CliRunner

from ballcast.cli import app

CLI = typer.main.get_command(app)

# Commands that are not run, by how they begin, and why. They are parsed: every verb, option and value must be known.
NOT_RUN = {
    "ballcast download": "needs the hub and SoccerNet's password; tests/data/download/test_download.py has stand-ins",
    "ballcast data push": "needs the hub; tests/cli/test_data_push.py has a stand-in",
    "ballcast train e2e": "needs ImageNet weights and a GPU; tests/training/test_end_to_end.py runs it on less",
    "ballcast train e2e-head": "needs a trained encoder; tests/training/test_end_to_end.py trains such heads",
    "ballcast train faantra-ws": "the same as e2e",
    "ballcast demo": "takes minutes; tests/workflows/test_demo.py runs it on less",
    "ballcast reproduce": "takes hours; tests/workflows/reproduce/test_reproduce.py runs it on less",
    "ballcast serve": "runs until it is stopped; tests/server/web/test_serve.py starts it",
    "ballcast live rtsp": "needs a camera; tests/video/test_stream.py has a stand-in",
    "ballcast live -": "reads a stream from stdin; tests/cli/test_live.py gives it one",
    "ballcast events wyscout_leagues.parquet": "needs the five leagues; tests/data/events/test_wyscout.py has a table",
}
# What is added to commands that are run, by how they begin; of options and keys given twice the later counts.
WIDTH = "model.width=40"
ADDED = {
    "ballcast extract": ["--workers", "1", "--device", "cpu", "--size", "own"],
    "ballcast train paper": [*SMALL_MODEL, WIDTH],
    "ballcast train faantra": [*SMALL_MODEL, WIDTH],
    "ballcast train events": [*SMALL_MODEL, "train.batch=128"],
    "ballcast train best": [*SMALL_MODEL, "train.batch=128"],
    "ballcast train feed": ["model.dim=32", "model.layers=1", "train.epochs=1", "train.steps=2", "train.batch=16"],
    "ballcast pretrain": SMALL_BACKBONE,
    "ballcast ablate": [*SMALL_MODEL, WIDTH, "--seeds", "1", "--variants", "variants.yaml"],
    "ballcast export": ["--video", "match.mp4"],
    "ballcast predict match.mp4": ["--pictures", "own"],  # not enlarged to the size of the embedded model's training
    "ballcast live": ["--speed", "0", "--pictures", "own"],
}


def begins(words: list[str], table: dict[str, Any]) -> Any:
    """The entry of the longest beginning that fits, else None."""
    fitting = [key for key in table if f"{' '.join(words)} ".startswith((f"{key} ", f"{key}:"))]
    return table[max(fitting, key=len)] if fitting else None


def run(words: list[str]) -> str:
    """Run it in this folder, or check it; gives "run", or why it was not. An AssertionError says what is wrong."""
    program = PROGRAMS.get(words[0])
    assert program is not None, f"{words[0]}: no test knows this program; teach tests/docs/typed.py"
    return program(words)


def _ballcast(words: list[str]) -> str:
    reason = begins(words, NOT_RUN)
    if reason is not None:
        parse(words[1:])
        return reason
    done = CliRunner().invoke(app, [*words[1:], *(begins(words, ADDED) or [])])
    assert done.exit_code == 0, f"exit code {done.exit_code}: {done.exception!r}\n{done.output[-1500:]}"
    return "run"


def parse(words: list[str], command: Any = CLI) -> None:
    """Have the command line understand the words, down to every option and value, and run nothing."""
    name = "ballcast"
    while hasattr(command, "commands"):
        name, words = words[0], words[1:]
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    with _complaints():
        command.make_context(name, list(words))


def mention(words: list[str]) -> None:
    """A command within a sentence, perhaps without its arguments: the verb and all options must be there."""
    if words[0] != "ballcast":
        run(words)
        return
    command, rest = CLI, words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no command {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    for word in rest:
        name = word.split("=")[0]
        is_option = re.match(r"--?[a-z]", name)
        assert not is_option or name in known | {"--help", "--install-completion"}, f"there is no option {name}"


@contextmanager
def _complaints() -> Iterator[None]:
    """What the parser complains of as an AssertionError."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            raise AssertionError(error.format_message()) from None
        raise


class _Understood(Exception):
    pass


def _python(words: list[str]) -> str:
    """`python -m benchmarks.x …` and `python tools/x.py …`: their own parser must take the arguments."""
    module, script = words[1] == "-m", words[1]
    name, arguments = (words[2], words[3:]) if module else (script, words[2:])

    def understood(parse: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **kwargs: Any) -> None:
            parse(*args, **kwargs)
            raise _Understood

        return checked

    def refuse(self: argparse.ArgumentParser, message: str) -> None:
        raise AssertionError(f"{name}: {message}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", understood(argparse.ArgumentParser.parse_args))
        intermixed = understood(argparse.ArgumentParser.parse_intermixed_args)
        patch.setattr(argparse.ArgumentParser, "parse_intermixed_args", intermixed)
        patch.setattr(argparse.ArgumentParser, "error", refuse)
        patch.setattr(sys, "argv", [name, *(word for word in arguments if "…" not in word)])
        patch.syspath_prepend(str(ROOT))
        if module:
            start = importlib.import_module(name).main
        else:
            start = partial(runpy.run_path, str(ROOT / script), run_name="__main__")
        with pytest.raises(_Understood):
            start()
    return "a benchmark or a tool of hours, or for the project's own data"


def _make(words: list[str]) -> str:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert words[1:], "make what?"
    assert set(words[1:]) <= set(targets), f"the Makefile has no {words[1:]}"
    return "sets up a whole environment; continuous integration runs it"


def _pip(words: list[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[2:]:
        named = re.search(r"\[([a-z,]+)\]", word)
        assert named is None or set(named[1].split(",")) <= set(extras), f"{word}: there is no such extra"
    return "changes the environment the tests run in"


def _curl(words: list[str]) -> str:
    from ballcast_server.web import job_routes, monitoring, render_routes, site_routes, stream_routes

    address = next(word for word in words if word.startswith("http"))
    path = address.removeprefix("http://127.0.0.1:8000").partition("?")[0]
    sends = {"--data-binary", "-F", "-d"} & set(words)
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if sends else "GET"
    modules = (job_routes, monitoring, render_routes, site_routes, stream_routes)
    routes = [*(route for module in modules for route in module.router.routes), *site_routes.pages.routes]
    fits = [r for r in routes if r.path_regex.match(path) and method in r.methods]  # type: ignore[attr-defined]
    assert fits, f"the server has no {method} {path}"
    return "needs a running server; tests/server/web/test_job_routes.py asks one"


def _torchrun(words: list[str]) -> str:
    parse(words[words.index("ballcast") + 1 :])
    return "needs several processes; tests/training/test_distributed.py starts two"


def _docker(words: list[str]) -> str:
    """What comes after the image's name is a command of ballcast."""
    if words[1] == "run" and (command := words[words.index("ballcast") + 1 :]):
        parse(command)
    return "needs a Docker daemon"


def _known(reason: str) -> Callable[[list[str]], str]:
    return lambda words: reason


PROGRAMS: dict[str, Callable[[list[str]], str]] = {
    "ballcast": _ballcast,
    "python": _python,
    "make": _make,
    "pip": _pip,
    "curl": _curl,
    "torchrun": _torchrun,
    "mkdocs": _known("tests/docs/test_site.py builds the site"),
    "docker": _docker,
    "git": _known("fetches the repository"),
    "ray": _known("starts a cluster; tests/server/streams/followers_on_cluster.py has one"),
    "apt": _known("installs what the game's engine needs"),
    "tar": _known("unpacks the archive of films"),
    "films/film": _known("needs the archive of films; tests/tools_simulation/test_bundle.py runs it"),
    "cd": _known("a shell's own"),
    "source": _known("a shell's own"),
    "export": _known("a shell's own"),
}


def write_variants(folder: Path) -> None:
    """For `ballcast ablate`: two variants instead of twelve."""
    (folder / "variants.yaml").write_text("paper: []\nlow threshold: [emit.threshold=0.05]\n")

"""Every command and every snippet of README.md and docs/ works, in the order in which a reader meets them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from docs.pages import PAGES, SHELL, Block, blocks, commands, mentioned, overrides
from docs.typed import mention, run, write_variants
from docs.world import AFTER, HAS

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import from_dict, keys, parse_overrides
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.pretrain_config import PretrainRecipe

BY_NAME = {path.name: path for path in PAGES}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def follow(page: Path, folder: Path) -> list[str]:
    """Do what the page says, from its first block to its last; gives what went wrong, each with its place."""
    wrong = []
    for block in blocks(page):
        try:
            if block.language in SHELL:
                for words in commands(block):
                    run(words)
            elif block.language == "python":
                execute(block)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language in ("yaml", "yml"):
                yaml.safe_load(block.text)
            else:
                raise AssertionError(f"a block of {block.language!r}: no test knows how to check it")
        except Exception as error:
            wrong.append(f"{block}: {words if block.language in SHELL else ''} {type(error).__name__}: {error}")
    return wrong


def execute(block: Block) -> None:
    """Run Python as it stands, with the frames and windows its page speaks of, and a file for a camera."""
    names = {"frames": torch.zeros(125, 32, 64, dtype=torch.uint8).numpy(), "windows": torch.zeros(1, 6, 33, 40)}
    text = block.text.replace('session("rtsp://camera/1")', 'session("match.mp4", speed=0)')
    exec(compile(text, str(block), "exec"), {"__name__": "snippet", **names})


@pytest.mark.filterwarnings("ignore::ballcast.core.errors.BallcastWarning")
def test_every_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test, since pages go on from what others made; each in a folder of its own."""
    wrong = []
    for name in sorted(BY_NAME, key=lambda name: (name in AFTER, name != "train.md", name)):
        folder = tmp_path / name
        if name in AFTER:
            shutil.copytree(tmp_path / AFTER[name], folder)
        else:
            folder.mkdir()
        if name == "README.md":  # it trains into the same places as the page it goes on from
            for made in ("features/train", "features/valid", "runs/paper"):
                shutil.rmtree(folder / made)
        for make in HAS.get(name, []):
            make(folder)
        write_variants(folder)
        monkeypatch.chdir(folder)
        wrong += follow(BY_NAME[name], folder)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("page", BY_NAME)
def test_commands_within_sentences_exist(page: str) -> None:
    for words in mentioned(BY_NAME[page]):
        try:
            mention(words)
        except AssertionError as error:
            raise AssertionError(f"{page}: `{' '.join(words)}`: {error}") from None


@pytest.mark.parametrize("page", BY_NAME)
def test_overrides_within_sentences_are_understood(page: str) -> None:
    known = {key: recipe for recipe in (FeedRecipe, PretrainRecipe, Recipe) for key in keys(recipe)}
    for word in overrides(BY_NAME[page]):
        key = word.split("=")[0]
        assert key in known, f"{page}: `{word}`: there is no such key"
        if key != "train.backbone":  # wants its partners
            from_dict(known[key], parse_overrides([word]))


def test_an_unknown_command_and_a_wrong_option_are_noticed() -> None:
    for line, complaint in [
        ("frobnicate match.mp4", "no test knows"),
        ("ballcast frobnicate", "exit code 2"),
        ("ballcast predict match.mp4 --nothing", "exit code 2"),
        ("ballcast serve --vidoes .", "No such option"),
        ("ballcast live rtsp://camera/1 --speed fast", "Invalid value"),
        ("python -m benchmarks.metric --clip many", "invalid int"),
        ("make coffee", "has no"),
        ("pip install '.[moon]'", "no such extra"),
        ("curl http://127.0.0.1:8000/api/nothing", "the server has no"),
    ]:
        (words,) = commands(Block("made up", 1, "bash", line))
        with pytest.raises(AssertionError, match=complaint):
            run(words)
    with pytest.raises(AssertionError, match="there is no option"):
        mention(["ballcast", "tune", "--nothing"])

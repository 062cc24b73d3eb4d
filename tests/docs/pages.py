"""What a reader finds on the pages: blocks of commands, of Python, of data, and commands within sentences."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("", "bash", "sh", "console")

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PROGRAM = re.compile(r"(ballcast|make|torchrun|pip install|docker|curl) |python (-m (benchmarks|tools)\.|tools/)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its line, its language, its text less the indentation."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    text, found = path.read_text(), []
    for fence in _FENCE.finditer(text):
        body = "\n".join(line.removeprefix(fence[1]) for line in fence[3].splitlines())
        found.append(Block(path.name, text.count("\n", 0, fence.start()) + 1, fence[2].strip(), body))
    return found


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a shell block: lines joined, comments dropped, && and pipes taken apart."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.replace("<this repository>", "REPOSITORY"), comments=True)
        while words:
            cut = next((i for i, word in enumerate(words) if word in ("&&", "|", ";")), len(words))
            found.append(words[:cut])
            words = words[cut + 1 :]
    return found


def spans(path: Path) -> list[str]:
    """Everything set as code within sentences and tables."""
    text = _FENCE.sub("", path.read_text()).replace("\\|", "|")
    return [" ".join(span.split()) for span in _SPAN.findall(text)]


def mentioned(path: Path) -> list[list[str]]:
    """The words of the commands among them."""
    found = []
    for span in spans(path):
        if _PROGRAM.match(span):
            command = span.split(" #")[0]
            found.append(shlex.split(command.split(" | ")[0]))
    return found


def overrides(path: Path) -> list[str]:
    """The dotted `key=value` among them."""
    words = [word for span in spans(path) for word in span.split()]
    return [word.rstrip(",") for word in words if re.match(r"[a-z_]+(\.[a-z_]+)+=[^=]", word)]

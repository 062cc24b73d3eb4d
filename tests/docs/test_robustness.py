"""The page of attacks names tests: each exists, and fuzz targets named there are run."""

import re

import pytest
from docs.pages import ROOT

TEXT = (ROOT / "docs/robustness.md").read_text()
TESTS = {
    name: path
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 30
    assert not named - TESTS.keys()
    files = set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT))
    assert not [file for file in files if not (ROOT / file).is_file()]


@pytest.mark.parametrize("heading", ["## Attacks\n", "## Attacks on the server\n"])
def test_every_attack_has_a_test(heading: str) -> None:
    table = TEXT.split(f"\n{heading}")[1].split("\n## ")[0].split("\n### ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| attack ")]
    assert len(rows) > 10
    assert not [row for row in rows if not re.search(r"`test_\w+`", row)]

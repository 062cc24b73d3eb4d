"""The docs build as a site without a warning, lead nowhere that is not there, and load nothing from elsewhere."""

import logging
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from docs.pages import PAGES, ROOT

from ballcast.features.stack_index import snippet_count, stack_count

mkdocs_build: Any = pytest.importorskip("mkdocs.commands.build")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: a warning is an error."""
    from mkdocs.config import load_config

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        folder = tmp_path_factory.mktemp("site")
        logging.getLogger("mkdocs").setLevel(logging.WARNING)
        mkdocs_build.build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_page_is_there(site: Path) -> None:
    assert {p.stem for p in PAGES if p.name != "README.md"} <= {p.stem for p in site.glob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """A reader without a network sees the same; links to click on are another matter."""
    for page in site.glob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?([^\"' >]+)", text)
        loaded += re.findall(r"<link[^>]*rel=[\"']?(?:stylesheet|icon|preconnect)[^>]*href=[\"']?([^\"' >]+)", text)
        assert loaded
        assert not [address for address in loaded if "//" in address], page.name


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_beside_the_site_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text()):
        assert "://" in target or (ROOT / target).exists(), f"{name}: {target}"


def test_the_shapes_of_the_diagram_are_the_models() -> None:
    """The one picture of the data flow says what the code does."""
    from ballcast.core.anticipator_config import Recipe
    from ballcast.core.backbone_config import BackboneConfig

    told = (ROOT / "docs/images/way.svg").read_text()
    model, backbone = Recipe().model, BackboneConfig()
    h, stacks = model.hierarchy, stack_count(backbone, snippet_count(backbone))
    for shape in (
        f"({model.windows}, {snippet_count(backbone)}, {backbone.width})",
        f"({stacks}, 192, H/32, W/32)",
        f"({model.windows}, {model.clips}, {h.dim})",
        f"({model.windows * h.steps}, {h.dim})",
        f"({model.slots}, {h.dim})",
        f"({model.slots}, {model.classes})",
        f"({model.slots}, {model.bins} bins",
    ):
        assert shape in told, shape
    assert f"of {snippet_count(backbone) * backbone.stacks} only {stacks} are distinct" in told


def test_the_packages_stand_in_the_order_of_their_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    orders = {c["containers"][0]: c["layers"] for c in contracts if c["type"] == "layers"}
    page = (ROOT / "docs/architecture.md").read_text().split("\n## Packages\n")[1].split("\n## ")[0]
    tables = [re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for table in page.split("| package | contents |")[1:]]
    for rows, layers in zip(tables, orders.values(), strict=True):
        named = [{name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", row)} for row in rows]
        assert named == [set(layer.split(" | ")) for layer in reversed(layers)]


def test_the_files_that_the_page_of_the_architecture_names_are_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    missing = []
    for file, names in re.findall(r"`((?:\w+/)+\w+\.\w+)`(?:: ((?:`[\w.]+`(?:, | and |;)?)+))?", page):
        found = [
            path
            for start in ("src", "src/ballcast", "src/ballcast_server/web", ".")
            if (path := ROOT / start / file).is_file()
        ]
        text = found[0].read_text() if found else ""
        missing += [] if found else [file]
        missing += [f"{file}: {name}" for name in re.findall(r"`([\w.]+)`", names) if name.split(".")[-1] not in text]
    assert not missing

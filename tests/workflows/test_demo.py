"""The demo from end to end, on embedded data made small; and what is really embedded."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from synthetic import make_game
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.anticipator_config import HierarchyConfig, ModelConfig
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.embedded import SAMPLES
from ballcast.core.events import Clip
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import LABELS, FeatureStore, Header
from ballcast.features.store_writer import StoreWriter
from ballcast.inference.store_predictor import check_backbone
from ballcast.model.anticipator import Anticipator
from ballcast.workflows import demo, demo_training
from tests.video.conftest import make_video

TINY = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=4)
SMALL = HierarchyConfig(dim=16, encoder_heads=2, encoder_ffn=16, decoder_layers=1, decoder_heads=2, decoder_ffn=16)


def features(folder: Path, windows: int) -> None:
    folder.mkdir(parents=True)
    writer = StoreWriter(folder, Header(BackboneIdentity("h", "made up"), 5, 8))
    block = np.random.default_rng(windows).normal(0, 1, (windows, 5, 8)).astype(np.float16)
    writer.add("match_001", block, source="match_001.mp4", size=0, mtime_ns=0)
    writer.finish()


def labels(folder: Path, tmp_path: Path, seconds: int) -> list[Clip]:
    clips = read_labels(make_game(tmp_path / f"made-{folder.name}", seconds, seed=seconds).path)
    write_labels(folder / LABELS, clips)
    return clips


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """What is embedded, in its layout, but tiny and untrained."""
    torch.manual_seed(0)
    folder = tmp_path / "samples"
    backbone = Backbone(TINY, name="tiny").eval()
    backbone.save_pretrained(folder / "backbone")
    model = Anticipator(
        ModelConfig(clips=snippet_count(TINY), width=TINY.width, hierarchy=SMALL),
        metadata={"backbone": {"hash": backbone.hash, "name": "tiny"}, "pos_weight": 4.0},
    )
    model.save_pretrained(folder / "anticipator")
    labels(folder / "test", tmp_path, 45)
    make_video(folder / "test" / "excerpt.mp4", range(45 * 25), size=(32, 64))
    for split, seconds in (("train", 120), ("valid", 60)):
        labels(folder / split, tmp_path, seconds)
        features(folder / "features" / split, seconds // 5)
    return folder


def test_the_whole_way(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_training, "RECIPE", (*demo_training.RECIPE, "train.epochs=2", "train.batch=8"))
    told = io.StringIO()
    path = demo.run(tmp_path / "out", Console(file=told, width=120), device="cpu", samples=samples)
    assert path == tmp_path / "out" / "report.html"
    assert told.getvalue().rstrip().endswith(str(path))
    assert "frames in" in told.getvalue()
    assert "are no measurement: the 95 % interval is" in told.getvalue()
    training = {"device": torch.device("cpu"), "samples": samples}
    demo_training.train_small(tmp_path / "out", Console(file=told, width=120), **training)
    assert "0 defects" in told.getvalue()
    page = path.read_text()
    for words in ("embedded model, from pixels", "Markov, given the true past", "class prior", "data:image/webp"):
        assert words in page
    assert "epoch 2/2" in told.getvalue()
    assert (tmp_path / "out" / "run" / "report.html").exists()
    assert (tmp_path / "out" / "results_anticipation.zip").exists()
    # Again: what is there is kept, nothing is computed twice, the end is the same.
    again = io.StringIO()
    demo.run(tmp_path / "out", Console(file=again, width=120), device="cpu", samples=samples)
    demo_training.train_small(tmp_path / "out", Console(file=again, width=120), **training)
    assert "epoch 2/2" not in again.getvalue()
    assert "frames in" not in again.getvalue()
    assert path.read_text() == page


def test_without_the_data_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(demo.InputError, match="reinstall ballcast"):
        demo.run(tmp_path / "out", Console(file=io.StringIO()), device="cpu", samples=tmp_path)


@pytest.mark.parametrize(("options", "opened"), [([], 0), (["--open"], 1), (["--no-open"], 0)])
def test_the_browser_opens_only_where_it_is_wanted(
    options: list[str], opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(demo, "run", lambda out, console, *, device: out / "report.html")
    monkeypatch.setattr("webbrowser.open", shown.append)
    monkeypatch.setenv("DISPLAY", ":0")  # a screen, but the output is no terminal
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "a <b>"), *options])
    assert done.exit_code == 0, done.output
    assert shown == [(tmp_path / "a <b>" / "report.html").as_uri()] * opened


EMBEDDED = pytest.mark.skipif(not (SAMPLES / "backbone").is_dir(), reason="no weights are embedded in this checkout")


@EMBEDDED
def test_what_is_embedded_fits_together_and_is_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLES.rglob("*") if file.is_file()) <= 45_000_000
    model, backbone = (
        Anticipator.from_pretrained(SAMPLES / "anticipator"),
        Backbone.from_pretrained(SAMPLES / "backbone"),
    )
    check_backbone(model, backbone, "anticipator", "backbone")
    for split in ("train", "valid"):
        store = FeatureStore.open(SAMPLES / "features" / split)
        store.check_finite()
        assert len(read_labels(SAMPLES / split)) == 54 * len(store.names)

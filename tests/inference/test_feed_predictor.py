"""Anticipation along a feed: causal, on one clock, and through the command line from the feed to the timeline."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from feeds import KINDS, event, feed, made_up
from typer.testing import CliRunner

from ballcast.cli import app
from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.data.events.event_grid import IDENTITIES, STEPS, WIDTHS, Detail
from ballcast.inference.feed_predictor import check_reads_events, period_begins, predict_feed
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator

ALL = EmitConfig(threshold=0.0)


def model(detail: Detail = "plain") -> Anticipator:
    torch.manual_seed(0)
    tiny = HierarchyConfig(dim=16, encoder_heads=2, decoder_heads=2, encoder_layers=1, decoder_layers=1)
    made = Anticipator(ModelConfig(clips=STEPS, width=WIDTHS[detail], auxiliary=False, hierarchy=tiny))
    made.metadata = {"backbone": {"hash": IDENTITIES[detail].hash, "name": IDENTITIES[detail].name}}
    return made.eval()


def test_a_feed_cut_off_gives_the_same_up_to_there(tmp_path: Path) -> None:
    rows = made_up(180, seed=2)
    match = feed(rows, tmp_path)
    whole = list(predict_feed(TorchRuntime(model()), match, every_ms=1000, config=ALL))
    assert period_begins(match) == {"1H": 0}
    assert [a.at_ms for a in whole] == list(range(30_000, 30_000 + 1000 * len(whole), 1000))
    for cut in (70.5, 120.0):
        shorter = feed([r for r in rows if r["eventSec"] < cut], tmp_path)
        part = list(predict_feed(TorchRuntime(model()), shorter, every_ms=1000, config=ALL))
        assert len(part) > 30
        for short, full in zip(part, whole, strict=False):
            assert short.at_ms == full.at_ms
            assert [(p.label, p.position_ms) for p in short.predictions] == [
                (p.label, p.position_ms) for p in full.predictions
            ]


def test_periods_follow_each_other_on_one_clock(tmp_path: Path) -> None:
    rows = [{**event(s, 10, KINDS[0]), "matchPeriod": p} for p in ("1H", "2H") for s in range(0, 50)]
    match = feed(rows, tmp_path)
    timeline = list(predict_feed(TorchRuntime(model()), match, every_ms=2000, config=ALL))
    assert period_begins(match) == {"1H": 0, "2H": 49_000}
    assert [a.at_ms for a in timeline] == [*range(30_000, 49_000, 2000), *range(79_000, 98_000, 2000)]
    for made in timeline:
        assert made.predictions
        assert all(0 <= p.position_ms - made.at_ms <= 5000 for p in made.predictions)


def test_a_model_of_something_else_is_refused(tmp_path: Path) -> None:
    other = model()
    other.metadata = {"backbone": {"hash": "0" * 64, "name": "a backbone"}}
    with pytest.raises(InputError, match="not on event feeds"):
        check_reads_events(other, "runs/x")
    with pytest.raises(InputError, match="longer than 30 s"):
        list(predict_feed(TorchRuntime(model()), feed(made_up(20, 0), tmp_path), every_ms=1000, config=ALL))


def test_progress_is_reported_to_the_end(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    match = feed(made_up(60, 0), tmp_path)
    made = predict_feed(TorchRuntime(model()), match, every_ms=40, config=ALL, progress=lambda *n: calls.append(n))
    timeline = list(made)
    assert len(calls) > 1
    assert calls[-1] == (len(timeline), len(timeline))


def test_from_feeds_to_a_store_and_a_timeline(
    tmp_path: Path, ballcast: Callable[..., object], clean_failure: Callable[..., None]
) -> None:
    (tmp_path / "matches").mkdir()
    for number in (1, 2):
        text = json.dumps({"events": [{**e, "matchId": number} for e in made_up(150, number)]})
        (tmp_path / f"matches/{number}.json").write_text(text)
    (tmp_path / "matches/3.json").write_text('{"events": [{"eventSec": 1}]}')
    done = ballcast("events", "matches", "store", "--provider", "wyscout", "--every", "5")
    assert done.returncode == 1, done.stderr  # type: ignore[attr-defined]
    assert "store: 2 matches" in done.stdout  # type: ignore[attr-defined]
    assert "3.json" in done.stderr  # type: ignore[attr-defined]
    model().save_pretrained(tmp_path / "model")
    done = ballcast(
        "predict", "--events", "matches/1.json", "--model", "model", "--every", "1", "--csv", "t.csv", "threshold=0.01"
    )
    assert done.returncode == 0, done.stderr  # type: ignore[attr-defined]
    written = json.loads((tmp_path / "1.events.anticipation.json").read_text())
    assert written["every_ms"] == 1000
    assert written["periods_begin_ms"] == {"1H": 0}
    assert [a["at_ms"] for a in written["anticipations"]][:2] == [30_000, 31_000]
    assert (tmp_path / "t.csv").read_text().startswith("at_ms,label")
    clean_failure(ballcast("predict", "--events", "none.json", "--model", "model"), "none.json", "no such file")
    clean_failure(ballcast("events", "matches", "new", "--provider", "tracab"), "unknown provider", "statsbomb")
    clean_failure(ballcast("events", "matches", "new", "--provider", "opta", "--split", "small"), "--split")


def test_a_warning_if_a_provider_lacks_the_details_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kloppy = pytest.importorskip("kloppy")
    file = Path(kloppy.__file__).parent / "tests/files/datafactory_events.json"
    if not file.is_file():
        pytest.skip(f"this kloppy ships no {file.name}")
    monkeypatch.chdir(tmp_path)
    given = ("--provider", "datafactory", "--every", "60")
    for detail in ("plain", "rich"):
        model(detail).save_pretrained(tmp_path / detail)  # type: ignore[arg-type]
        for command in (
            ("events", str(file), f"{detail}-store", "--detail", detail, *given),
            ("predict", "--events", str(file), "--model", detail, *given),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
            messages = [str(w.message) for w in caught if w.category is BallcastWarning]
            assert len(messages) == (detail == "rich"), command
            assert all("datafactory does not record" in text for text in messages)

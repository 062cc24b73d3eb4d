"""The event transformer along a match: no future, calibrated, in torch and in ONNX Runtime, as tables and clips."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from feeds import event, feed, made_up
from safetensors.torch import save_file
from typer.testing import CliRunner

from ballcast.api import FeedForecasts, load
from ballcast.cli import app
from ballcast.core.errors import InputError
from ballcast.core.feed_config import EventTransformerConfig
from ballcast.core.feed_forecast import EITHER, SHOT, columns, shot_chances
from ballcast.inference.calibration import fit_calibration
from ballcast.inference.event_model import calibrated, open_event_model
from ballcast.inference.feed_predictor import predict_events, summarise
from ballcast.inference.feed_tables import read_kickoffs, write_clips, write_table
from ballcast.model.event_transformer import EventTransformer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, untrained."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("model")
    config = EventTransformerConfig(dim=32, heads=2, layers=1, ffn=32)
    save_file(EventTransformer(config).state_dict(), place / "model.safetensors")
    neutral = [np.ones((10, 5)).tolist(), np.zeros((10, 5)).tolist()]
    tree = {"kind": "event-transformer", "network": asdict(config), "calibration": neutral}
    (place / "config.json").write_text(json.dumps(tree))
    return place


def test_a_feed_cut_off_gives_the_same_up_to_there(folder: Path, tmp_path: Path) -> None:
    model = open_event_model(folder)
    rows = made_up(120, seed=2)
    whole = list(predict_events(model, feed(rows, tmp_path)))
    for cut in (50.5, 80.0):
        part = list(predict_events(model, feed([r for r in rows if r["eventSec"] < cut], tmp_path)))
        until = part[-1].at_ms
        same = [made for made in whole if made.at_ms < until]
        assert len(same) > 40
        for short, full in zip(part, same, strict=False):
            assert (short.at_ms, short.team) == (full.at_ms, full.team)
            np.testing.assert_allclose(short.chance, full.chance, atol=1e-5)
            np.testing.assert_allclose(short.zones, full.zones, atol=1e-5)


def test_every_second_and_every_event(folder: Path, tmp_path: Path) -> None:
    match = feed(made_up(60, seed=1), tmp_path)
    made = list(predict_events(open_event_model(folder), match, every_ms=1000))
    seconds = [f.period_ms for f in made if not f.event]
    assert seconds == list(range(5000, int(match.t_ms.max()) + 1, 1000))
    assert sorted(f.period_ms - 1 for f in made if f.event) == match.t_ms[match.t_ms >= 5000].tolist()
    assert all((f.chance >= 0).all() and (f.chance <= 1).all() for f in made)
    assert all(abs(f.zones.sum() - 1) < 1e-4 for f in made)


def test_teams_are_by_number_whoever_has_the_ball(folder: Path, tmp_path: Path) -> None:
    """The same events by the other team give the same forecast with the teams exchanged."""
    rows = [event(s, 10, ("Pass", "Simple pass")) for s in range(1, 12)]
    other = [row | {"teamId": 11} for row in rows]
    extra = event(30, 11, ("Shot", "Shot")), event(30, 10, ("Shot", "Shot"))
    model = open_event_model(folder)
    one = next(iter(predict_events(model, feed([*rows, extra[0]], tmp_path))))
    two = next(iter(predict_events(model, feed([*other, extra[1]], tmp_path))))
    assert (one.team, two.team) == (0, 1)
    np.testing.assert_allclose(one.chance[[1, 0, EITHER]], two.chance, atol=1e-6)


def test_a_calibration_undoes_a_known_distortion() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-2, 1.5, (40_000, 10, 5))
    came = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    shown = 1 / (1 + np.exp(-(odds - 0.5) / 1.3))
    slope, shift = fit_calibration(shown.astype(np.float32), came)
    np.testing.assert_allclose(slope, 1.3, atol=0.08)
    np.testing.assert_allclose(shift, 0.5, atol=0.12)
    both = np.stack([shown[:50] * 0.7, shown[:50] * 0.3, shown[:50]], 1).astype(np.float32)
    fixed = calibrated(both, np.stack([slope, shift]))
    assert (np.diff(fixed[:, 2], axis=-1) >= -1e-6).all()
    np.testing.assert_allclose(fixed[:, 0] + fixed[:, 1], fixed[:, 2], atol=1e-5)


def test_actions_that_hardly_occur_stay_as_they_are() -> None:
    """A small set of matches: nothing is learned from an action that never came, beyond that it is rare."""
    rng = np.random.default_rng(0)
    chance = rng.uniform(0, 0.02, (300, 10, 5)).astype(np.float32)
    came = rng.random(chance.shape) < chance
    came[:, 3] = False
    middle = np.full((1, 3, 10, 5), 0.01, np.float32)
    fixed = calibrated(middle, fit_calibration(chance, came))[0, 2]
    assert ((fixed[3] > 0.0002) & (fixed[3] < 0.005)).all()
    assert ((fixed[4] > 0.005) & (fixed[4] < 0.03)).all()
    slope, shift = fit_calibration(np.full((50, 10, 5), 1e-9, np.float32), np.ones((50, 10, 5), bool))
    assert np.isfinite(slope).all()
    assert np.isfinite(shift).all()


def test_the_interface_gives_a_frame(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    match = feed(made_up(60, 0), tmp_path)
    opened = load(folder, runtime="torch").feed(tmp_path / "match.json")
    assert isinstance(opened, FeedForecasts)
    assert (opened.about["provider"], opened.match.teams) == ("wyscout", ("10", "11"))
    frame = opened.to_frame()
    assert list(frame.columns) == list(columns())
    assert frame["shot_5s"].between(0, 1).all()
    assert (frame["shot_5s"] >= frame["shot_1s"] - 1e-5).all()
    assert set(frame["team"]) <= {"10", "11"}
    assert len(opened.match.shots) == int(((match.action == SHOT) | (match.goal != 0)).sum())
    with pytest.raises(InputError, match="reads event feeds, not videos"):
        load(folder).new_runtime()


def test_tables_and_clips(folder: Path, tmp_path: Path) -> None:
    match = feed(made_up(90, 0), tmp_path)
    made = list(predict_events(open_event_model(folder), match))
    about = summarise(match, "wyscout", ())
    write_table(tmp_path / "t.csv", made, about)
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert len(rows) == len(made)
    assert float(rows[3]["shot_5s"]) == pytest.approx(made[3].within(SHOT, 5), abs=1e-5)
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(tmp_path / "t.parquet", made, about)
    assert parquet.read_table(tmp_path / "t.parquet").num_rows == len(made)
    chosen = shot_chances(made, about, count=3)
    assert all(abs(a.at_ms - b.at_ms) >= 15_000 for a in chosen for b in chosen if a is not b)
    write_clips(tmp_path / "c.xml", chosen, about, read_kickoffs("1H=100", about.begins))
    found = ElementTree.parse(tmp_path / "c.xml").findall(".//instance")
    assert len(found) == len(chosen)
    first = min(chosen, key=lambda m: m.at_ms)
    assert float(found[0].findtext("start") or 0) == pytest.approx(first.at_ms / 1000 + 100 - 10)
    for text, fault in (("2H=5", "none of the match's"), ("1H=x", "not a number")):
        with pytest.raises(InputError, match=fault):
            read_kickoffs(text, about.begins)


def test_the_command_line(folder: Path, tmp_path: Path) -> None:
    feed(made_up(90, 0), tmp_path)
    out, table = tmp_path / "out.json", tmp_path / "t.csv"
    given = ["predict", "--events", str(tmp_path / "match.json"), "--model", str(folder), "-o", str(out)]
    result = CliRunner().invoke(app, [*given, "--table", str(table), "--clips", str(tmp_path / "c.xml")])
    assert result.exit_code == 0, result.output
    assert "shot within 5 s" in result.output
    tree = json.loads(out.read_text())
    assert tree["events"] == "match.json"
    assert "video" not in tree
    assert str(tmp_path) not in out.read_text()
    assert tree["anticipations"][0]["within_5s"]["shot"] >= 0
    assert table.read_text().startswith("match,period,minute,second")
    missing = CliRunner().invoke(app, ["predict", "--events", str(tmp_path / "no.json"), "--model", str(folder)])
    assert isinstance(missing.exception, InputError)
    assert "no such file" in str(missing.exception)


def test_a_damaged_config_is_named(folder: Path, tmp_path: Path) -> None:
    tree = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(tree | {"calibration": [1]}))
    with pytest.raises(InputError, match="calibration"):
        open_event_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tree | {"network": {}}))
    with pytest.raises(InputError, match="network"):
        open_event_model(tmp_path)


def test_weights_that_give_no_numbers_are_named(folder: Path, tmp_path: Path) -> None:
    """Found by the fuzzer: forecasts of NaN were a traceback when they were written."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes((folder / "config.json").read_bytes())
    weights = EventTransformer(EventTransformerConfig(dim=32, heads=2, layers=1, ffn=32)).state_dict()
    save_file(
        {name: torch.full_like(value, torch.nan) for name, value in weights.items()},
        tmp_path / "model" / "model.safetensors",
    )
    with pytest.raises(InputError, match="not finite; its weights are damaged"):
        list(predict_events(open_event_model(tmp_path / "model"), feed(made_up(20, seed=1), tmp_path)))
    tree = json.loads((folder / "config.json").read_text())
    for wrong in (float("nan"), 1e30, 10**400):
        (tmp_path / "config.json").write_text(json.dumps(tree | {"calibration": [[[wrong] * 5] * 10] * 2}))
        with pytest.raises(InputError, match=r"calibration|number"):
            open_event_model(tmp_path)


def test_a_period_of_a_second_has_no_forecast(folder: Path, tmp_path: Path) -> None:
    """An excerpt may hold only the first event of a period."""
    rows = made_up(60, seed=1)
    whole = list(predict_events(open_event_model(folder), feed(rows, tmp_path)))
    longer = feed([*rows, {**rows[-1], "id": 10**6, "matchPeriod": "2H", "eventSec": 1.0}], tmp_path)
    assert len(list(longer.periods())) == 2
    assert [f.at_ms for f in predict_events(open_event_model(folder), longer)] == [f.at_ms for f in whole]

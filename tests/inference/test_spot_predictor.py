"""Forecasts along spots: no future, classes that a spotter lacks, torch and ONNX Runtime alike, submissions, tables."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import ballcast
from ballcast.core.actions import ACTIONS
from ballcast.core.embedded import FEED_MODEL, SPOT_MODEL
from ballcast.core.errors import InputError
from ballcast.core.events import Clip
from ballcast.core.feed_config import SpotTransformerConfig
from ballcast.core.spots import HIGH_PASS, OUT, Spots, without_details
from ballcast.inference.spot_model import SpotModel, open_spot_model
from ballcast.inference.spot_predictor import COLUMNS, predict_clips, predict_spots, write_spot_table
from ballcast.inference.submission import write_submission
from ballcast.model.spot_transformer import SpotTransformer, load_spot_transformer

KNOTS = [0.01, 0.2, 0.5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, untrained."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("model")
    config = SpotTransformerConfig(dim=32, heads=2, layers=1, ffn=32)
    save_file(SpotTransformer(config).state_dict(), place / "model.safetensors")
    neutral = [np.ones((10, 5)).tolist(), np.zeros((10, 5)).tolist()]
    tree = {"kind": "spot-transformer", "network": asdict(config), "calibration": neutral}
    (place / "config.json").write_text(json.dumps(tree | {"peaks": 3, "knots": [KNOTS] * 10}))
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> SpotModel:
    return open_spot_model(folder)


def some(count: int = 60, seed: int = 0, name: str = "match") -> Spots:
    rng = np.random.default_rng(seed)
    return Spots(
        np.sort(rng.integers(0, 90_000, count)),
        rng.integers(0, 10, count),
        rng.random(count).astype(np.float32),
        rng.integers(-1, 2, count),
        rng.integers(-1, 6, count),
        name=name,
    )


def test_spots_cut_off_give_the_same_up_to_there(model: SpotModel) -> None:
    spots = some()
    whole = list(predict_spots(model, [spots]))
    cut = spots.take(spots.position_ms < 50_000)
    part = list(predict_spots(model, [cut]))
    same = [made for made in whole if made.at_ms <= 50_000]
    assert len(part) == len(same) > 40
    for short, full in zip(part, same, strict=True):
        assert (short.at_ms, short.last, short.since_ms) == (full.at_ms, full.last, full.since_ms)
        np.testing.assert_allclose(short.chance, full.chance, atol=1e-6)
        assert [p.label for p in short.predictions] == [p.label for p in full.predictions]


def test_from_the_first_spot_to_the_last(model: SpotModel) -> None:
    spots = replace(some(), position_ms=np.sort(np.random.default_rng(0).integers(3_100, 9_900, 60)))
    made = list(predict_spots(model, [spots, some(0), replace(spots, name="b")], every_ms=2000))
    assert [(one.video, one.at_ms) for one in made] == [
        (v, t) for v in ("match", "b") for t in (4000, 6000, 8000, 10_000)
    ]
    for one in made:
        assert (np.diff(one.chance, axis=-1) >= 0).all()
        assert all(one.at_ms <= p.position_ms <= one.at_ms + 5000 for p in one.predictions)


def test_a_class_that_the_spotter_lacks_is_not_forecast(model: SpotModel) -> None:
    spots = without_details(some())
    made = list(predict_spots(model, [spots]))
    absent = {"HIGH PASS", "OUT"}
    for one in made:
        assert not absent & {p.label for p in one.predictions}
        assert {label for label in ACTIONS if one.within(label, 5) is None} == absent
        assert one.to_json()["within_5s"]["high pass"] is None
        assert one.within("PASS", 5) == pytest.approx(one.chance[0, 4])
    intensity, _ = model.run(spots, np.array([40_000]))
    assert not model.scores(intensity)[..., [HIGH_PASS, OUT]].any()


def test_padding_left_out_changes_nothing(folder: Path, model: SpotModel) -> None:
    """Times with few spots are run with fewer tokens; the network gives the same with all of its padding."""
    spots = some(12)
    at = np.array([int(spots.position_ms[0]), int(spots.position_ms[2]) + 1, 80_000, 150_000])
    network = load_spot_transformer(folder)
    for one in at:
        together, alone = model.run(spots, at), model.run(spots, np.array([one]))
        for mixed, single in zip(together, alone, strict=True):
            np.testing.assert_allclose(mixed[at.tolist().index(one)], single[0], atol=1e-6)
    assert network.config.tokens == model.tokens


def test_scores_are_spread_in_order(model: SpotModel) -> None:
    intensity, _ = model.run(some(), np.arange(10_000, 80_000, 1000))
    scores = model.scores(intensity)
    raw = np.concatenate([open_spot_model_scores(model, intensity[i : i + 1]) for i in range(len(intensity))])
    np.testing.assert_array_equal(
        np.argsort(raw[..., 0].ravel(), kind="stable"), np.argsort(scores[..., 0].ravel(), kind="stable")
    )
    assert scores.max() <= 1
    assert ((scores > 0).sum(1) == 3).all()


def open_spot_model_scores(model: SpotModel, intensity: np.ndarray) -> np.ndarray:
    """The scores before they are spread."""
    return replace(model, spread=tuple(replace(own, knots=()) for own in model.spread)).scores(intensity)


def clips(count: int = 3) -> list[Spots]:
    spots = some()
    early = spots.take(spots.position_ms < 30_000)
    return [replace(early, name=f"clip_{i + 1}/720p.mp4") for i in range(count)]


def test_a_submission_for_clips_in_the_order_of_the_split(model: SpotModel, tmp_path: Path) -> None:
    split = [Clip(f"clip_{i}", labelled=False) for i in (4, 3, 2, 1)]
    made = predict_clips(model, clips(), split)
    assert list(made) == ["clip_4", "clip_3", "clip_2", "clip_1"]
    assert all(made.values())
    assert made["clip_3"] == made["clip_1"] != made["clip_4"]
    write_submission(tmp_path / "results.json", made)
    assert len(json.loads((tmp_path / "results.json").read_text())["videos"]) == 4


def test_what_is_no_submission(model: SpotModel) -> None:
    with pytest.raises(
        InputError, match=r"match: has a spot at 1:.*; a submission is for clips of which 30 s are seen"
    ):
        predict_clips(model, [some()])
    with pytest.raises(InputError, match="clip_1: appears a second time"):
        predict_clips(model, [*clips(), clips()[0]])
    with pytest.raises(InputError, match="clip_1: is no clip of the split"):
        predict_clips(model, clips(), [Clip("clip_2"), Clip("clip_3")])


def test_the_table(model: SpotModel, tmp_path: Path) -> None:
    made = list(predict_spots(model, [without_details(some())]))
    write_spot_table(tmp_path / "t.csv", made)
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert len(rows) == len(made)
    assert tuple(rows[0]) == COLUMNS
    assert {name for name, value in rows[5].items() if not value} == {
        f"{n}_{s}s" for n in ("high_pass", "out") for s in (1, 2, 3, 5)
    }
    assert float(rows[5]["shot_5s"]) == pytest.approx(made[5].within("SHOT", 5), abs=1e-5)
    assert rows[5]["last"] == made[5].last


def test_the_python_call(folder: Path, tmp_path: Path) -> None:
    model = ballcast.load(folder)
    (tmp_path / "s.csv").write_text("1,PASS,0.9\n2.5,DRIVE,0.8\n4,GOAL,1\n")
    forecasts = model.spots(tmp_path / "s.csv")
    assert forecasts.left_out == {"GOAL": 1}
    assert forecasts.about["not_forecast"] == ["HIGH PASS", "OUT"]
    assert [one.at_ms for one in forecasts] == [2000, 3000]
    frame = model.spots(some()).to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) > 80
    with pytest.raises(InputError, match="reads spots only"):
        model.feed(tmp_path / "s.csv")
    with pytest.raises(InputError, match="reads spots only"):
        model.video(tmp_path / "s.csv")
    with pytest.raises(InputError, match=r'feed_model: does not read spots; use ballcast.load\("spots"\)'):
        ballcast.load(FEED_MODEL).spots(tmp_path / "s.csv")


@pytest.mark.parametrize("change", [{"knots": [KNOTS]}, {"peaks": "many"}, {"calibration": [1]}, {"network": {}}])
def test_a_damaged_model_is_refused(change: dict[str, object], folder: Path, tmp_path: Path) -> None:
    tree = json.loads((folder / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"config\.json: its network, calibration, peaks or knots are damaged"):
        open_spot_model(tmp_path)


def test_the_embedded_model_is_the_same_in_torch_and_in_onnx_runtime() -> None:
    spots, at = some(200), np.arange(5000, 90_000, 1500)
    onnx, in_torch = open_spot_model(SPOT_MODEL), open_spot_model(SPOT_MODEL, torch_device="cpu")
    assert (onnx.device, in_torch.device) == ("onnx", "cpu")
    for one, other in zip(onnx.run(spots, at), in_torch.run(spots, at), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_the_embedded_model_knows_football() -> None:
    """After a pass the other player of the team drives; after a ball out comes a throw-in."""
    model = open_spot_model(SPOT_MODEL)
    passes = Spots(
        np.array([1000, 2500, 4000]), np.array([0, 1, 0]), np.ones(3, np.float32), np.zeros(3, int), np.array([1, 2, 2])
    )
    out = replace(passes, action=np.array([0, 0, OUT]))
    _, chance = model.run(passes, np.array([4100]))
    _, after_out = model.run(out, np.array([4100]))
    drive, throw_in = ACTIONS.index("DRIVE"), ACTIONS.index("THROW IN")
    assert chance[0, drive, 4] > 0.5
    assert after_out[0, throw_in, 4] > 5 * chance[0, throw_in, 4]
    attribution = str(model.about["attribution"])
    assert "Wyscout" in attribution
    assert "CC BY 4.0" in attribution

"""`ballcast train feed`: it learns, is resumed as if nothing had been, and its model forecasts along a feed."""

import csv
import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feeds import made_up
from safetensors.torch import load_file, save_file

from ballcast.core.actions import ACTIONS
from ballcast.core.config import load
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.event_schema import DETAILS
from ballcast.core.events import Prediction
from ballcast.core.feed_config import FeedRecipe
from ballcast.data.samples.feed_samples import FeedEvents, FeedWindows, Match
from ballcast.inference.event_model import open_event_model
from ballcast.metrics.average_precision import score
from ballcast.model.event_transformer import EventTransformer, load_event_transformer
from ballcast.model.postprocess import POSITIONS_MS, select_times
from ballcast.training.data import open_feed_data, read_matches
from ballcast.training.distributed import Ranks, joined
from ballcast.training.evaluation import FeedOutputs, predict_feed_windows, score_feed_windows
from ballcast.training.feed import FeedTask
from ballcast.training.loop import RunContext, Trainer, open_run
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SMALL = [
    *("model.dim=32", "model.heads=2", "model.layers=1", "model.ffn=32"),
    *("train.epochs=2", "train.steps=5", "train.batch=16", "train.ema=0.8", "data.every_ms=3000"),
]


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two matches to train on and one to validate on, as version 2 of Wyscout."""
    folder = tmp_path_factory.mktemp("matches")
    for seed, split in enumerate(("train", "train", "valid")):
        (folder / split).mkdir(exist_ok=True)
        rows = [{**row, "matchId": 100 + seed} for row in made_up(120, seed)]
        (folder / split / f"{seed}.json").write_text(json.dumps({"events": rows}))
    return folder


def recipe(matches: Path, *overrides: str) -> FeedRecipe:
    return load(FeedRecipe, Path("feed"), [f"data.source={matches}", *SMALL, *overrides])


def contents(folder: Path) -> dict[str, bytes]:
    """Everything a run wrote that must not depend on how often it was interrupted."""
    kept = [p for p in folder.rglob("*") if p.is_file() and "tensorboard" not in p.parts]
    timed = ("environment.json", "epochs.csv")
    return {str(p.relative_to(folder)): p.read_bytes() for p in kept if p.name not in timed}


def column(run: Path, name: str, file: str = "steps.csv") -> list[float]:
    with (run / file).open() as lines:
        return [float(row[name]) for row in csv.DictReader(lines)]


def test_it_learns_and_its_model_forecasts(
    matches: Path, tmp_path: Path, ballcast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line to a table of forecasts; the loss falls."""
    more = ["train.steps=40", "train.lr=5e-3", "train.warmup=0.1"]
    done = ballcast("train", "feed", f"data.source={matches}", *SMALL, *more, "--out", "run", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "train: 2 matches, " in done.stdout
    assert "80 steps, best validation mAP" in done.stdout
    run = tmp_path / "run"
    total = column(run, "total")
    assert np.mean(total[-10:]) < 0.8 * np.mean(total[:10])
    names = {path.name for path in run.iterdir()}
    saved = {"best", "last", "config.yaml", "environment.json", "steps.csv", "epochs.csv", "state.safetensors"}
    assert names == {*saved, "tensorboard"}
    assert load(FeedRecipe, run / "config.yaml") == recipe(matches, *more)
    match = next((matches / "valid").iterdir())
    given = ["--model", "run/best", "-o", "out.json", "--table", "t.csv"]
    done = ballcast("predict", "--events", match, *given)
    assert done.returncode == 0, done.stderr
    assert "shot within 5 s" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["anticipations"]
    assert len((tmp_path / "t.csv").read_text().splitlines()) > 100


def test_real_matches_are_learned_from(shared: Path, tmp_path: Path) -> None:
    """One match of Wyscout's to learn from, and one to be scored on."""
    for split, match in (("train", "2499719"), ("valid", "2565548")):
        (tmp_path / split).mkdir()
        os.symlink(shared / "data/events/raw" / f"{match}.json", tmp_path / split / f"{match}.json")
    updates: list[ProgressUpdate] = []
    made = recipe(tmp_path, "train.steps=30", "train.batch=64", "train.lr=3e-3", "data.every_ms=11000")
    progress = train(made, tmp_path / "run", device=CPU, show=updates.append)
    assert progress.best > 0.05
    first, last = (update.losses["total"] for update in updates if update.ended)
    assert last < 0.9 * first
    opened = open_event_model(tmp_path / "run" / "best")
    assert (opened.device, opened.tokens) == ("cpu", 24)
    assert opened.about["trained_on"].endswith("train: 1 matches")


def test_what_is_saved_is_what_was_scored(matches: Path, tmp_path: Path) -> None:
    made = recipe(matches)
    context = open_run(made, tmp_path, CPU, Ranks())
    trainer = Trainer(FeedTask(made, context), made, context)
    progress = trainer.fit()
    task = trainer.task
    kept = load_event_transformer(tmp_path / "last").state_dict()
    assert any(not torch.equal(value, kept[key]) for key, value in task.model.state_dict().items())
    assert task.ema is not None
    assert task.valid is not None
    with task.ema.swapped():
        assert all(torch.equal(value, kept[key]) for key, value in task.model.state_dict().items())
        outputs = predict_feed_windows(task.model, task.valid)
    result = score_feed_windows(outputs, task.valid)
    assert column(tmp_path, "avg", "epochs.csv")[-1] == pytest.approx(result.avg)
    tree = json.loads((tmp_path / "best" / "config.json").read_text())
    assert tree["metadata"]["validation"]["avg"] == progress.best
    assert tree["metadata"]["epoch"] == progress.best_epoch
    assert tree["metadata"]["matches"] == ["100", "101"]
    assert np.array(tree["calibration"]).shape == (2, 10, 5)
    assert {float(a) for a in np.ravel(tree["calibration"])} != {0.0, 1.0}
    assert trainer.fit() == progress  # finished: nothing to do


def test_the_score_is_the_official_one(matches: Path) -> None:
    """Of the times that are selected from the expected actions, as predictions of a submission."""
    windows = FeedWindows.from_matches(read_matches(recipe(matches).data)["valid"], 3000)
    intensity = np.random.default_rng(0).random((10, len(windows), 32), np.float32) / 30
    for i, clip in enumerate(windows.clips):
        for event in clip.anticipation:
            intensity[event.action, i, (event.position_ms - 30_000) * 25 // 4000] += 0.2
    result = score_feed_windows(FeedOutputs(intensity, np.zeros((len(windows), 10, 5), np.float32)), windows)
    scores = select_times(intensity, [1280] * 10, 8)
    predictions = {
        clip.name: [
            Prediction(ACTIONS[vector.argmax()], int(POSITIONS_MS[bin_]), float(vector.max()), tuple(vector.tolist()))
            for bin_, vector in enumerate(scores[i])
            if vector.any()
        ]
        for i, clip in enumerate(windows.clips)
    }
    expected = score(windows.clips, predictions)
    assert expected.avg > 0.2
    np.testing.assert_allclose(result.ap, expected.ap)


def test_a_feed_that_lacks_details_is_read_as_it_will_be(matches: Path) -> None:
    """In training and in scoring, the model sees that details are missing, and not what they would have been."""
    lacking = [replace(match, missing=("player", "end")) for match in read_matches(recipe(matches).data)["train"]]
    windows = FeedWindows.from_matches(lacking, 3000)
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    model = EventTransformer(recipe(matches).model)
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    predict_feed_windows(model, windows)
    made = recipe(matches, "mask.samples=0")
    data = replace(open_feed_data(made, CPU), train=FeedEvents.from_matches(lacking, CPU))
    task = FeedTask(made, RunContext(Path("unused"), CPU), data)
    task.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    task.step(next(task.batches(0, 0)))
    assert len(seen) == 2
    for codes, values, available in seen:
        assert {DETAILS[i] for i in torch.nonzero(available[0] == 0).flatten()} == {"player", "end"}
        assert not codes[..., 4].any()  # the same player
        assert torch.equal(values[..., 0:2], values[..., 2:4])  # the end is the start


# -- resumed -------------------------------------------------------------------------------------------------------


def cut_after(steps: int) -> Any:
    seen = 0

    def show(update: ProgressUpdate) -> None:
        nonlocal seen
        seen += not update.ended
        if seen == steps:
            raise KeyboardInterrupt

    return show


def test_cut_anywhere_and_run_again_it_ends_with_the_same_bytes(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches, "train.seed=5"), tmp_path / "teacher", device=CPU)
    made = recipe(
        matches, "train.save_every=1", f"distil.teachers=[{tmp_path / 'teacher' / 'best'}]", "model.dropout=0.3"
    )
    train(made, tmp_path / "whole", device=CPU)
    for steps in (1, 3, 4):
        torch.rand(steps)  # whatever was drawn before in this process must not matter
        with pytest.raises(KeyboardInterrupt):
            train(made, tmp_path / "cut", device=CPU, show=cut_after(steps))
    train(made, tmp_path / "cut", device=CPU)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert all(value > 0 for value in column(tmp_path / "cut", "distilled"))


def test_killed_and_started_again_it_ends_with_the_same_bytes(matches: Path, tmp_path: Path) -> None:
    overrides = [f"data.source={matches}", *SMALL, "train.save_every=1", "train.epochs=4"]
    command = [sys.executable, "-m", "ballcast", "train", "feed", *overrides, "--device", "cpu", "--out"]
    train(load(FeedRecipe, Path("feed"), overrides), tmp_path / "whole", device=CPU)
    process = subprocess.Popen([*command, str(tmp_path / "cut")], stdout=subprocess.DEVNULL)
    while not (tmp_path / "cut" / "state.safetensors").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert subprocess.run([*command, str(tmp_path / "cut")], stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


# -- two processes -------------------------------------------------------------------------------------------------


def torchrun(*command: object) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, *map(str, command)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def first_gradients(matches: Path, run: Path) -> dict[str, torch.Tensor]:
    """The gradients of the first step, without dropout, and the outputs for the validation windows."""
    with joined("cpu") as (ranks, device):
        return gradients_of(matches, run, ranks, device)


def gradients_of(matches: Path, run: Path, ranks: Ranks, device: torch.device) -> dict[str, torch.Tensor]:
    made = recipe(matches, "model.dropout=0", "train.clip=1e9")
    task = FeedTask(made, RunContext(run, device, ranks))
    assert task.valid is not None
    outputs = predict_feed_windows(task.model, task.valid, ranks=ranks, batch=7)
    losses = task.step(next(task.batches(0, 0)))
    gradients = {name: p.grad.clone() for name, p in task.model.named_parameters() if p.grad is not None}
    gradients |= {"losses": ranks.mean(losses), "chance": torch.from_numpy(outputs.chance)}
    if ranks.writes:
        save_file(gradients, run.with_suffix(".safetensors"))
    return gradients


def test_two_ranks_give_the_gradients_of_the_joined_batch(matches: Path, tmp_path: Path) -> None:
    alone = first_gradients(matches, tmp_path / "alone")
    torchrun(__file__, matches, tmp_path / "both")
    both = load_file(tmp_path / "both.safetensors")
    assert both.keys() == alone.keys()
    assert len(alone) > 20
    for name, gradient in alone.items():
        torch.testing.assert_close(both[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_a_training_that_is_over_is_freed_at_once(matches: Path, tmp_path: Path) -> None:
    """Without waiting for the garbage collector: DDP's threads must have ended before the process does."""
    gc.disable()
    try:
        task = FeedTask(recipe(matches), RunContext(tmp_path, CPU))
        task.step(next(task.batches(0, 0)))
        model = weakref.ref(task.model)
        del task
        assert model() is None
    finally:
        gc.enable()


def test_a_run_of_two_processes_is_the_run_of_one(matches: Path, tmp_path: Path) -> None:
    overrides = [f"data.source={matches}", *SMALL, "model.dropout=0"]
    torchrun("-m", "ballcast", "train", "feed", *overrides, "--out", tmp_path / "both", "--device", "cpu")
    train(load(FeedRecipe, Path("feed"), overrides), tmp_path / "alone", device=CPU)
    for file in ("steps.csv", "epochs.csv"):
        one, two = (np.genfromtxt(tmp_path / run / file, delimiter=",", names=True) for run in ("alone", "both"))
        for name in set(one.dtype.names) - {"seconds"}:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-5, err_msg=name)


# -- starts, teachers, and what does not fit -----------------------------------------------------------------------


def test_it_starts_from_a_model_of_its_sizes(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches), tmp_path / "first", device=CPU)
    start = f"train.start={tmp_path / 'first' / 'best'}"
    task = FeedTask(recipe(matches, start, "model.dropout=0.5"), RunContext(tmp_path / "second", CPU))
    weights = load_event_transformer(tmp_path / "first" / "best").state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in task.model.state_dict().items())
    with pytest.raises(InputError, match=r"its sizes are not those of the recipe"):
        train(recipe(matches, start, "model.ffn=64"), tmp_path / "third", device=CPU)
    with pytest.raises(InputError, match=r"first: is a run folder; give its model, .*best"):
        train(recipe(matches, f"train.start={tmp_path / 'first'}"), tmp_path / "third", device=CPU)


def test_teachers_pull_the_student(matches: Path, tmp_path: Path) -> None:
    """Taught by nothing else, it comes nearer to the embedded model than where it began."""
    made = recipe(matches, "distil.teachers=[embedded]", "distil.weight=1", "train.steps=30", "train.lr=5e-3")
    train(made, tmp_path, device=CPU)
    distilled = column(tmp_path, "distilled")
    assert np.mean(distilled[-10:]) < 0.8 * np.mean(distilled[:10])
    assert column(tmp_path, "total") == distilled
    with pytest.raises(InputError, match=r"embedded: cannot teach this model, since it has 8 slots"):
        train(recipe(matches, "distil.teachers=[embedded]", "model.slots=4"), tmp_path / "other", device=CPU)


def test_without_validation_the_newest_is_the_best(matches: Path, tmp_path: Path) -> None:
    progress = train(recipe(matches, "data.train=[train, valid]", "data.valid=[]"), tmp_path, device=CPU)
    assert (progress.best, progress.best_epoch) == (-1.0, 2)
    tree = json.loads((tmp_path / "best" / "config.json").read_text())
    assert tree["calibration"] == [np.ones((10, 5)).tolist(), np.zeros((10, 5)).tolist()]
    assert tree["metadata"]["matches"] == ["100", "101", "102"]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.source=nowhere", r"nowhere: no such file or folder; set data\.source"),
        ("data.train=[trian]", r"trian: no such folder; put the feeds of this split there"),
        ("data.valid=[train]", r"match 100 is trained on and validated on"),
        ("data.provider=opta", r"no \.xml files of events"),
        ("data.provider=nobody", r"unknown provider 'nobody'"),
        ("train.start=nowhere", r"nowhere/config\.json"),
        ("distil.teachers=[nowhere]", r"nowhere/config\.json"),
    ],
)
def test_what_does_not_fit_is_one_sentence(matches: Path, tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        train(recipe(matches, override), tmp_path / "run", device=CPU)
    assert not (tmp_path / "run").exists()


def test_a_match_that_cannot_be_read_is_left_out(matches: Path, tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / split).mkdir()
    whole = next((matches / "valid").iterdir()).read_text()
    (tmp_path / "train" / "1.json").write_text(whole)
    (tmp_path / "train" / "2.json").write_text(whole[:-50])
    with pytest.warns(BallcastWarning, match=r"1 of 2 matches cannot be read and are left out; the first: .*2\.json"):
        found = read_matches(recipe(tmp_path, "data.valid=[]").data)
    assert [match.feed.match for match in found["train"]] == ["102"]
    (tmp_path / "valid" / "2.json").write_text(whole[:-50])
    with pytest.raises(InputError, match="not one match could be read"):
        read_matches(recipe(tmp_path, "data.train=[valid]", "data.valid=[]").data)


def test_the_table_has_the_benchmarks_splits(matches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "leagues.parquet"
    table.touch()
    found = {split: [match.feed for match in own] for split, own in read_matches(recipe(matches).data).items()}
    asked: list[str] = []
    monkeypatch.setattr("ballcast.training.data.read_table", lambda path: path)
    monkeypatch.setattr("ballcast.training.data.split_matches", lambda feeds, size: asked.append(size) or found)
    data = recipe(table, "data.size=small").data
    assert read_matches(data)["valid"] == [Match(found["valid"][0])]
    assert asked == ["small"]
    with pytest.raises(InputError, match=r"leagues\.parquet: has the splits train, valid, and no split 'other'"):
        read_matches(replace(data, valid=("other",)))


def test_another_recipe_is_refused_and_more_epochs_go_on(matches: Path, tmp_path: Path) -> None:
    train(recipe(matches), tmp_path, device=CPU)
    with pytest.raises(InputError, match=r"was started with mask\.samples=0\.4, now it is 0\.1"):
        train(recipe(matches, "mask.samples=0.1"), tmp_path, device=CPU)
    assert train(recipe(matches, "train.epochs=3"), tmp_path, device=CPU).step == 15


if __name__ == "__main__":
    first_gradients(Path(sys.argv[1]), Path(sys.argv[2]))

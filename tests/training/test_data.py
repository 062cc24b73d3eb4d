"""What a run says about its samples before it starts, and when it warns of them."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import SMALL, WINDOWS, make_clips, make_features, make_game, write_store

from ballcast.core.anticipator_config import DataConfig, Recipe
from ballcast.core.config import load
from ballcast.core.errors import BallcastWarning
from ballcast.data.labels.soccernet import read_labels, write_labels
from ballcast.data.samples.windows import WindowSet, official_windows
from ballcast.features.store import LABELS
from ballcast.training.data import check_stitching, describe_samples
from ballcast.training.run import train

PAPER = torch.tensor([0.28, 1.0, 2.46])


def windows(samples: int, *stretches: tuple[int, ...], left_out: int = 0) -> WindowSet:
    """So many samples of nothing, of splits with stretches of so many clips."""
    events = np.full((samples, 8), -1)
    index, presence = np.zeros((samples, 6), np.int64), np.zeros((samples, 1, 10), np.uint8)
    names = [""] * samples
    return WindowSet([], index, events, events, presence, names, [], left_out=left_out, stretches=stretches)


def warned(made: WindowSet, weights: torch.Tensor = PAPER, data: DataConfig | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_stitching(made, weights, data or DataConfig())
    assert all(w.category is BallcastWarning for w in caught)
    return [str(w.message) for w in caught]


def test_the_samples_are_described_beside_the_papers() -> None:
    paper = "(the paper: about 22900 of 4587 clips, 4.99 a clip; w_c 0.28 to 2.46)"
    assert describe_samples(windows(76, (14, 2)), torch.tensor([0.5, 1.75])) == (
        "76 training samples of 16 clips (4.75 a clip), stitched into 2 stretches of 8.0 clips on average; "
        f"class weights w_c 0.50 to 1.75 {paper}"
    )
    assert "stitched into 1 stretch of 14.0" in describe_samples(windows(66, (14,)), PAPER)
    assert describe_samples(windows(9), PAPER) == f"9 training samples; class weights w_c 0.28 to 2.46 {paper}"


def test_clips_that_could_not_be_joined_are_warned_of_at_any_size() -> None:
    (text,) = warned(windows(12, (1,) * 6 + (2,)))
    assert "only 1 of 7 clips could be joined" in text
    assert "data.stitch_tolerance_ms" in text
    assert "within 40 ms" in text
    assert warned(windows(66, (14,))) == []
    assert warned(windows(12, (2, 1, 2, 3))) == []  # 4 of 7
    assert warned(windows(2, (1,), (1,))) == []  # two splits of one clip: nothing to join
    assert warned(windows(9)) == []  # not stitched


def test_only_the_whole_training_split_is_compared_with_the_papers_counts() -> None:
    whole = (500,) * 9 + (87,)
    made = 5 * 4587 - 4 * 10
    assert warned(windows(made, whole)) == []
    assert warned(windows(4587, whole, left_out=made - 4587)) == []  # that has a warning of its own
    (text,) = warned(windows(20_000, whole))
    assert "4587 clips give 20000 training samples where the paper has about 22900" in text
    assert warned(windows(20_000, whole), data=DataConfig(every_ms=2000)) == []
    assert warned(windows(1000, (400,))) == []
    (text,) = warned(windows(made, whole), torch.tensor([0.28, 2.0]))
    assert "class weights are 0.28 to 2.00 where the paper has 0.28 to 2.46" in text
    assert warned(windows(66, (14,)), torch.tensor([0.9, 1.1])) == []


@pytest.mark.parametrize(("apart_ms", "tolerance_ms"), [(1, 40), (41, 40), (41, 41)])
def test_a_run_says_its_samples_first_and_warns_if_stitching_failed(
    tmp_path: Path, apart_ms: int, tolerance_ms: int
) -> None:
    make_game(tmp_path / "train", 100, seed=3)
    clips = read_labels(tmp_path / "train")
    moved = [
        replace(c, observation=tuple(replace(e, position_ms=e.position_ms + apart_ms * (i % 2)) for e in c.observation))
        for i, c in enumerate(clips)
    ]
    write_labels(tmp_path / "train" / LABELS, moved)
    short = ["train.epochs=1", "train.batch=8", "train.warmup_epochs=0", "data.valid=[]", f"data.features={tmp_path}"]
    short.append(f"data.stitch_tolerance_ms={tolerance_ms}")
    recipe, said = load(Recipe, Path("paper"), [*SMALL, *short]), list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(recipe, tmp_path / "run", device=torch.device("cpu"), log=said.append)
    texts = [str(w.message) for w in caught if w.category is BallcastWarning]
    (line,) = said
    if apart_ms <= tolerance_ms:
        assert line.startswith("66 training samples of 14 clips (4.71 a clip), stitched into 1 stretch")
        assert texts == []
    else:
        assert line.startswith("14 training samples of 14 clips (1.00 a clip), stitched into 14 stretches")
        assert any("only 0 of 13 clips could be joined" in text for text in texts)


def test_clips_as_they_are_have_no_stretches(tmp_path: Path) -> None:
    clips = make_clips(3, seed=0)
    store = write_store(tmp_path / "train", clips, make_features(clips, seed=0))
    assert official_windows([(store, clips)], WINDOWS).stretches == ()

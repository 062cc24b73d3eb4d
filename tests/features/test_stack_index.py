"""The index arithmetic of stacks and snippets, against the definition frame by frame."""

import numpy as np
import pytest
import torch

from ballcast.core.backbone_config import BackboneConfig
from ballcast.features import stack_index as index

CONFIGS = [BackboneConfig(), BackboneConfig(frames=33), BackboneConfig(stride=6), BackboneConfig(step=1, stride=1)]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_stacks_of_a_snippet_are_its_frames(config: BackboneConfig) -> None:
    count = index.snippet_count(config)
    frames = index.stack_frames(config, index.stack_count(config, count))
    got = frames[index.snippet_stacks(config, count)].reshape(count, -1)  # (N, frames)
    starts = config.stride * np.arange(count)
    assert np.array_equal(got, starts[:, None] + config.step * np.arange(config.frames))
    assert got.max() < 125
    assert got.max() + config.stride >= 125  # one more snippet would not fit


def test_the_worked_example() -> None:
    config = BackboneConfig()
    stacks = index.snippet_stacks(config, index.snippet_count(config))
    assert (stacks.size, len(np.unique(stacks)), index.stack_count(config, 33)) == (165, 41, 41)
    assert stacks[:2].tolist() == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    assert index.stack_frames(config, 41)[-1].tolist() == [120, 122, 124]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_runs_snippets_are_a_stack_apart(config: BackboneConfig) -> None:
    frames, stacks = index.run_frames(config, 3), config.stacks + 2
    own = frames.reshape(stacks, config.stack)[index.run_stacks(config, stacks)].reshape(3, -1)
    starts = config.step * config.stack * np.arange(3)
    assert np.array_equal(own, starts[:, None] + config.step * np.arange(config.frames))
    assert np.array_equal(index.run_middles(config, 3), starts + index.snippet_span(config) // 2)


def test_torch_gives_the_same_numbers() -> None:
    config = BackboneConfig()
    one = index.run_stacks(config, 7)
    ours = index.batch_stacks(one, batch=2, stacks=7)
    theirs = index.batch_stacks(index.run_stacks(config, 7, torch.arange), batch=2, stacks=7, arange=torch.arange)
    assert np.array_equal(ours, theirs.numpy())
    assert np.array_equal(ours[1], one + 7)


def test_windows() -> None:
    assert [index.window_count(frames, 25) for frames in (124, 125, 149, 150, 750)] == [0, 1, 1, 2, 26]
    assert index.window_frames(np.array([3]))[0].tolist() == list(range(3, 128))

"""Clips of SN-BAA that lack a few frames at their end: padded with black ones, recorded and printed."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ballcast import cli
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore
from ballcast.features.videos import BufferPool, cut, decode, find_sources
from ballcast.video.decode_pool import LocalDecoder
from ballcast.video.file import VideoFile
from tests.features.test_extract import write_video

BLACK = torch.zeros(48, 64, dtype=torch.uint8)


@pytest.mark.parametrize(("frames", "pad", "padded"), [(750, 25, 0), (749, 25, 1), (725, 25, 25), (749, 1, 1)])
def test_missing_frames_are_black(tmp_path: Path, frames: int, pad: int, padded: int) -> None:
    write_video(tmp_path / "clip_1" / "224p.mp4", frames, 1)
    (piece,) = cut(find_sources(tmp_path)[0], 750, 125)
    decoded = decode(replace(piece, pad=pad), BufferPool(1), LocalDecoder())
    found = decoded.frames
    assert (len(found), decoded.padded) == (750, padded)
    video = VideoFile(tmp_path / "clip_1" / "224p.mp4").read(0, 750)
    np.testing.assert_array_equal(found[:frames], video)
    assert all(torch.equal(frame, BLACK) for frame in found[frames:])


@pytest.mark.parametrize(("frames", "pad"), [(724, 25), (749, 0)])
def test_more_is_an_error(tmp_path: Path, frames: int, pad: int) -> None:
    write_video(tmp_path / "clip_1" / "224p.mp4", frames, 1)
    (piece,) = cut(find_sources(tmp_path)[0], 750, 125)
    with pytest.raises(InputError, match=rf"has {frames} frames at 25 fps, a clip must have 750 \(up to {pad} missing"):
        decode(replace(piece, pad=pad), BufferPool(1), LocalDecoder())


def test_a_padded_clip_is_recorded_and_printed(
    backbone: Backbone, backbone_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    split = tmp_path / "split"
    write_video(split / "clip_1" / "224p.mp4", 749, 1)
    options = ["--backbone", str(backbone_folder), "--size", "own", "--device", "cpu", "--workers", "1"]
    done = CliRunner().invoke(cli.app, ["extract", "split", "store", *options])
    assert done.exit_code == 0, done.output
    assert "padded: clip_1: 1 black frame(s) at its end" in done.output
    store = FeatureStore.open(tmp_path / "store")
    assert store.entry("clip_1").padded == 1
    video = VideoFile(split / "clip_1" / "224p.mp4").read(0, 750)
    padded = np.concatenate([video, np.zeros((1, 48, 64), np.uint8)])
    windows = BatchEncoder(backbone, compiled=False).windows(padded, store.window_starts).to(torch.float16)
    np.testing.assert_array_equal(store.windows("clip_1"), windows)
    # A second clip turns the store back into parts and merges it again: what is recorded of the first stays.
    shutil.copytree(split / "clip_1", split / "clip_2")
    os.utime(split / "clip_2" / "224p.mp4", ns=(1, 1))
    again = extract(split, tmp_path / "store", backbone, size="own", device="cpu", workers=1)
    assert [entry.padded for entry in again.store.manifest.entries] == [1, 1]
    assert again.frames == 750
    refused = CliRunner().invoke(cli.app, ["extract", "split", "other", *options, "--pad", "0"])
    assert isinstance(refused.exception, InputError)
    assert "a clip must have 750" in str(refused.exception)


def test_a_store_without_the_record_is_read(backbone: Backbone, tmp_path: Path) -> None:
    """Stores written before there was padding do not have the field."""
    write_video(tmp_path / "a.mp4", 130, 1)
    extract(tmp_path / "a.mp4", tmp_path / "store", backbone, size="own", device="cpu", workers=1)
    path = tmp_path / "store" / "manifest.json"
    tree = json.loads(path.read_text())
    assert tree["entries"][0].pop("padded") == 0
    del tree["header"]["preprocessing"]["picture_size"]
    path.write_text(json.dumps(tree))
    store = FeatureStore.open(tmp_path / "store")
    assert store.entry("a").padded == 0
    assert store.manifest.picture_size == (48, 64)
    again = extract(tmp_path / "a.mp4", tmp_path / "store", backbone, size="own", device="cpu", workers=1)
    assert again.frames == 0

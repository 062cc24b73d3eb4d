"""Extraction: the right frames, the same bytes however it is run or killed, bad videos named."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from ray_nodes import Nodes, needs_ray, run_apart

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import AsyncFeatures, BatchEncoder
from ballcast.features.extract import extract
from ballcast.features.extract_workers import Decoders, choose_decoders
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import Parts
from ballcast.features.videos import cut, find_sources, work
from ballcast.video.decode_pool import LocalDecoder, Opened, SharedMemory, VideoSpec
from ballcast.video.file import VideoFile
from tests.features.conftest import small_backbone


def write_video(path: Path, frames: int, seed: int, size: tuple[int, int] = (48, 64)) -> None:
    """A video of moving noise; size: H, W."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25, options={"preset": "ultrafast", "g": "50"})
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        for i in range(frames):
            out.mux(
                stream.encode(
                    av.VideoFrame.from_ndarray(np.roll(noise, i, 1), format="gray").reformat(format="yuv420p")
                )
            )
        out.mux(stream.encode())


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split of four clips as SN-BAA unpacks, labels included."""
    folder = tmp_path_factory.mktemp("split")
    write_video(folder / "clip_1" / "224p.mp4", 750, 1)
    write_video(folder / "clip_2" / "224p.mp4", 750, 2)
    shutil.copytree(folder / "clip_1", folder / "clip_10")
    shutil.copytree(folder / "clip_2", folder / "clip_3")
    (folder / "Labels-ball.json").write_text('{"videos": []}')
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def expected(split: Path, backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of an uninterrupted run with one worker."""
    out = tmp_path_factory.mktemp("expected") / "store"
    extract(split, out, backbone, device="cpu", workers=1)
    return out


def test_the_store_of_a_split(split: Path, expected: Path, backbone: Backbone) -> None:
    store = FeatureStore.open(expected)
    assert store.names == ("clip_1", "clip_2", "clip_3", "clip_10")
    assert store.window_starts == (0, 125, 250, 375, 500, 625)
    assert store.identity == backbone.hash
    assert store.manifest.resolution == (48, 64)
    assert sorted(contents(expected)) == ["Labels-ball.json", "manifest.json", "shard-00000.safetensors"]
    video = VideoFile(split / "clip_2" / "224p.mp4").read(0, 750)
    windows = BatchEncoder(backbone, compiled=False).windows(video, store.window_starts).to(torch.float16)
    np.testing.assert_array_equal(store.windows("clip_2"), windows)
    np.testing.assert_array_equal(store.windows("clip_2"), store.windows("clip_3"))
    assert not np.array_equal(store.windows("clip_1"), store.windows("clip_2"))


def test_the_last_frame_used_is_749(split: Path, expected: Path, backbone: Backbone) -> None:
    store = FeatureStore.open(expected)
    video = VideoFile(split / "clip_1" / "224p.mp4").read(0, 750)
    video[749] = 0
    changed = BatchEncoder(backbone, compiled=False).windows(video, store.window_starts).to(torch.float16).numpy()
    different = (changed != store.windows("clip_1")).any(-1)
    assert np.argwhere(different).tolist() == [[5, 32]]


def test_mirrored_frames_have_a_store_of_their_own(
    split: Path, expected: Path, backbone: Backbone, tmp_path: Path
) -> None:
    extract(split, tmp_path / "store", backbone, device="cpu", workers=1, mirrored=True)
    store, plain = FeatureStore.open(tmp_path / "store"), FeatureStore.open(expected)
    assert store.manifest.header.preprocessing is not None
    assert store.manifest.header.preprocessing.mirrored
    with VideoFile(split / "clip_1" / "224p.mp4") as video:
        frames = video.read(0, 750)[..., ::-1].copy()
    wanted = BatchEncoder(backbone, device="cpu").windows(frames, range(0, 626, 125)).half().numpy()
    np.testing.assert_array_equal(store.windows("clip_1"), wanted)
    assert not np.array_equal(wanted, plain.windows("clip_1"))
    shutil.copytree(expected, tmp_path / "plain")
    with pytest.raises(InputError, match="was made with mirrored False, not True; give another output folder"):
        extract(split, tmp_path / "plain", backbone, device="cpu", mirrored=True)


def test_two_workers_give_the_same_bytes(split: Path, expected: Path, backbone: Backbone, tmp_path: Path) -> None:
    report = extract(split, tmp_path / "store", backbone, device="cpu", workers=2)
    assert report.frames == 4 * 750
    assert contents(tmp_path / "store") == contents(expected)


def test_without_a_gpu_the_cpu_decodes_and_says_so(
    split: Path, expected: Path, backbone: Backbone, tmp_path: Path
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.warns(BallcastWarning, match="--decoder cuda: PyAV on the CPU, since NVDEC failed"):
        extract(split, tmp_path / "store", backbone, device="cpu", workers=1, decoder="cuda")
    assert contents(tmp_path / "store") == contents(expected)


def test_a_piece_begins_before_the_last_one_is_fetched(
    split: Path, expected: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which copies frames while it computes; the results are slow here."""
    log: list[str] = []
    windows, array = BatchEncoder.windows, AsyncFeatures.array
    monkeypatch.setattr(BatchEncoder, "windows", lambda *given: log.append("begun") or windows(*given))
    monkeypatch.setattr(AsyncFeatures, "array", lambda self: log.append("fetched") or array(self))
    monkeypatch.setattr(AsyncFeatures, "ready", lambda self: False)
    sources = find_sources(split)
    pieces = [piece for source in sources for piece in cut(source, 750, 125)]
    broken = cut(replace(sources[0], name="gone", path=split / "gone.mp4"), 750, 125)
    engine = BatchEncoder(backbone, compiled=False)
    outcomes = list(work(engine, [*pieces[:2], *broken, *pieces[2:]], ["cpu", "cpu"], ahead=True))
    store = FeatureStore.open(expected)
    assert len(outcomes) == 5
    for outcome in outcomes:
        if outcome.features is None:
            assert outcome.piece.source.name == "gone"
            assert "gone.mp4" in outcome.reason
        else:
            np.testing.assert_array_equal(outcome.features, store.windows(outcome.piece.source.name))
    log.clear()
    stopped = work(engine, pieces, ["cpu"], ahead=True)
    next(stopped)
    assert log[:3] == ["begun", "begun", "fetched"]
    fetched = log.count("fetched")
    stopped.close()
    assert log.count("fetched") == fetched + 1  # memory is not given back while a device may read it


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("compiled", [False, True])
def test_copying_while_computing_gives_the_same_bytes(compiled: bool, split: Path, backbone: Backbone) -> None:
    engine = BatchEncoder(backbone, device="cuda", compiled=compiled)
    pieces = [piece for source in find_sources(split) for piece in cut(source, 750, 125)]
    alone, together = (
        {outcome.piece.source.name: outcome.features for outcome in work(engine, pieces, ["cpu", "cpu"], ahead=ahead)}
        for ahead in (False, True)
    )
    assert len(alone) == 4
    for name, features in alone.items():
        np.testing.assert_array_equal(together[name], features)
    video = VideoFile(split / "clip_1" / "224p.mp4").read(0, 750)
    expected = engine.windows(video, range(0, 750, 125)).half().cpu().numpy()
    np.testing.assert_array_equal(together["clip_1"], expected)


@pytest.mark.parametrize("ahead", [False, True])
def test_decoders_of_their_own_give_the_same_bytes(
    ahead: bool, split: Path, expected: Path, backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside a GPU: one network, two processes that decode for it; memory for two pieces only, of two sizes."""
    monkeypatch.setattr("ballcast.features.extract._decoders", lambda todo, options: Decoders(2, 0, "two"))
    monkeypatch.setattr("ballcast.features.videos.available_memory", lambda: 0)
    monkeypatch.setattr("ballcast.features.extract_workers.work", partial(work, ahead=ahead))
    here = tmp_path / "split"
    shutil.copytree(split, here, copy_function=shutil.copy2)
    report = extract(here, tmp_path / "store", backbone, device="cpu", workers=1)
    assert report.decoders == "two"
    assert contents(tmp_path / "store") == contents(expected)
    write_video(here / "clip_4" / "224p.mp4", 750, 4, (64, 96))  # larger: the memory must grow
    (here / "clip_5").mkdir()
    (here / "clip_5" / "224p.mp4").write_text("<html>")
    report = extract(here, tmp_path / "store", backbone, device="cpu", workers=1)
    assert [failure.name for failure in report.failed] == ["clip_5"]
    video = VideoFile(here / "clip_4" / "224p.mp4").read(0, 750)
    windows = BatchEncoder(backbone, compiled=False).windows(video, range(0, 750, 125)).to(torch.float16)
    np.testing.assert_array_equal(report.store.windows("clip_4"), windows)


@pytest.mark.parametrize(
    ("costs", "pixels", "found", "words"),
    [
        ((1.0, 0.1), "same", (14, 8), "14 processes and 8 sessions of NVDEC decode: a process decodes"),
        ((1.0, 0.9), "same", (16, 0), "with little less work for it"),
        ((1.0, 0.1), "other", (16, 0), "NVDEC gives other pixels"),
        ((1.0, 0.1), "none", (16, 0), "since NVDEC failed"),
    ],
)
def test_decoders_are_chosen_by_measurement(
    split: Path,
    monkeypatch: pytest.MonkeyPatch,
    costs: tuple[float, float],
    pixels: str,
    found: tuple[int, int],
    words: str,
) -> None:
    """A GPU that is played: its decoder is the CPU's, with the given CPU time a frame in units of 10⁻⁹ s."""

    class Played(LocalDecoder):
        busy_s = 0.0

        def __init__(self, device: str) -> None:
            super().__init__(device if pixels == "none" else "cpu")
            self.played = device

        def open(self, recording: VideoSpec) -> Opened:
            found = super().open(recording)
            gpu = self.played == "cuda" and pixels != "none"
            return replace(found, decoder="PyAV on the GPU (NVDEC)") if gpu else found

        def read(self, recording: VideoSpec, start: int, stop: int, memory: SharedMemory, offset: int = 0) -> int:
            count = super().read(recording, start, stop, memory, offset)
            self.busy_s += 1e-9 * count * costs[self.played == "cuda"]
            memory.array[-1] += self.played == "cuda" and pixels == "other"
            return count

    monkeypatch.setattr("ballcast.features.extract_workers.ProcessDecoder", Played)
    (piece,) = cut(find_sources(split)[0], 750, 125)
    chosen = choose_decoders(piece, "auto", 16)
    if pixels == "none" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert (chosen.cores, chosen.sessions) == found  # one core for the network, one for copies of frames
    assert words in chosen.why
    assert chosen.devices("cuda:1") == ["cuda:1"] * found[1] + ["cpu"] * found[0]
    assert choose_decoders(piece, "cuda", 3).devices("cuda:1") == ["cuda:1"] * 3
    assert choose_decoders(piece, "cpu", 3).devices("cuda:1") == ["cpu"] * 3


@needs_ray
def test_ray_gives_the_same_bytes_though_a_machine_dies(
    split: Path, expected: Path, backbone_folder: Path, tmp_path: Path, ray_nodes: Nodes
) -> None:
    """Two nodes on this machine; one is killed while it works."""
    store = tmp_path / "store"
    printed = run_apart("tests.features.extract_on_cluster", split, store, backbone_folder, ray_nodes.door)
    assert "killed after 750 frames" in printed
    assert f"{4 * 750} frames" in printed
    assert contents(tmp_path / "store") == contents(expected)


@needs_ray
def test_a_cluster_that_is_not_there(split: Path, backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"--cluster 127\.0\.0\.1:1: no Ray cluster answers there .*`ray start --head`"
    ):
        extract(split, tmp_path / "store", backbone, device="cpu", cluster="127.0.0.1:1")


def test_without_ray(split: Path, backbone_folder: Path, tmp_path: Path, clean_failure: Callable) -> None:
    hidden = "import sys; sys.modules['ray'] = None; from ballcast.cli import main; main()"
    options = ["--backbone", backbone_folder, "--device", "cpu", "--engine", "ray"]
    command = [sys.executable, "-c", hidden, "extract", split, tmp_path / "store", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    clean_failure(done, "Ray Data", "pip install '", "[ray]'")


def test_features_are_never_thrown_away(split: Path, expected: Path, backbone: Backbone, tmp_path: Path) -> None:
    """Another source, or one whose videos are gone, into a finished store: refused, and the store is as it was."""
    out = tmp_path / "store"
    shutil.copytree(expected, out)
    others = tmp_path / "others"
    write_video(others / "a.mp4", 130, 7)
    with pytest.raises(InputError, match=r"holds features of clip_1 and 3 more, whose video cannot be read at"):
        extract(others, out, backbone, device="cpu", workers=1)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "b.mp4").write_text("<html>")
    with pytest.raises(InputError, match="none of its 1 video"):
        extract(tmp_path / "page", out, backbone, device="cpu", workers=1)
    assert contents(out) == contents(expected)
    assert not list(tmp_path.glob(".*.lock"))


def test_corrected_labels_reach_a_finished_store(backbone: Backbone, tmp_path: Path) -> None:
    write_video(tmp_path / "videos" / "a.mp4", 130, 7)
    (tmp_path / "videos" / "Labels-ball.json").write_text("old")
    extract(tmp_path / "videos", tmp_path / "store", backbone, device="cpu", workers=1)
    (tmp_path / "videos" / "Labels-ball.json").write_text("new")
    report = extract(tmp_path / "videos", tmp_path / "store", backbone, device="cpu", workers=1)
    assert report.frames == 0
    assert (tmp_path / "store" / "Labels-ball.json").read_text() == "new"


def test_one_extraction_at_a_time(backbone: Backbone, tmp_path: Path) -> None:
    write_video(tmp_path / "videos" / "a.mp4", 130, 7)
    told = []

    def meanwhile(done: int, total: int) -> None:
        with pytest.raises(InputError, match="another extraction is at work there") as caught:
            extract(tmp_path / "videos", tmp_path / "store", backbone, device="cpu", workers=1)
        told.append(caught)

    extract(tmp_path / "videos", tmp_path / "store", backbone, device="cpu", workers=1, progress=meanwhile)
    assert told
    assert {p.name for p in tmp_path.iterdir()} == {"videos", "store"}


def test_a_piece_of_another_backbone_is_not_trusted(backbone: Backbone, tmp_path: Path) -> None:
    write_video(tmp_path / "videos" / "a.mp4", 130, 7)
    sources, header = find_sources(tmp_path / "videos"), Header(backbone.identity, 33, backbone.config.width)
    (piece,) = cut(sources[0], 130, 125)
    parts, other = Parts(tmp_path / "store"), Parts(tmp_path / "store")
    parts.begin(header)
    parts.write(piece, np.zeros((1, 33, backbone.config.width), np.float16), (48, 64))
    assert parts.has(piece)
    (tmp_path / "store" / "parts" / "header.json").unlink()
    other.begin(replace(header, backbone=small_backbone(seed=1).identity))
    assert not other.has(piece)


def test_odd_names(tmp_path: Path) -> None:
    for name in ("a.mp4", "a.mkv", "a.mp4.mkv"):
        (tmp_path / name).touch()
    assert [s.name for s in find_sources(tmp_path)] == ["a.mkv", "a.mp4", "a.mp4.mkv"]
    (tmp_path / os.fsdecode(b"caf\xe9.mp4")).touch()
    assert "caf\\xe9.mp4" in [s.name for s in find_sources(tmp_path)]


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_run_again(
    split: Path, expected: Path, backbone_folder: Path, backbone: Backbone, tmp_path: Path, workers: int
) -> None:
    out = tmp_path / "store"
    command = [sys.executable, "-m", "ballcast", "extract", split, out, "--backbone", backbone_folder]
    options = ["--device", "cpu", "--workers", str(workers)]
    process = subprocess.Popen([*map(str, command), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not list((out / "parts").glob("*.safetensors")):  # at least one clip is done
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.Random(workers).uniform(0, 0.1))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = len(list((out / "parts").glob("*.safetensors")))
    if not (out / "manifest.json").exists():
        with pytest.raises(InputError, match="not finished; run the same command again"):
            FeatureStore.open(out)
        (out / "parts" / ".x.safetensors.0a1b2c3d.tmp").write_bytes(b"half")  # what a kill while writing leaves
        report = extract(split, out, backbone, device="cpu", workers=1)
        assert report.frames <= (4 - kept) * 750
    assert contents(out) == contents(expected)


def test_a_changed_video_is_done_again(split: Path, backbone: Backbone, tmp_path: Path) -> None:
    here = tmp_path / "split"
    for name in ("clip_1", "clip_2"):
        shutil.copytree(split / name, here / name)
    out = tmp_path / "store"
    before = np.array(extract(here, out, backbone, device="cpu", workers=1).store.windows("clip_2"))
    assert extract(here, out, backbone, device="cpu", workers=1).frames == 0
    shutil.copy(split / "clip_1" / "224p.mp4", here / "clip_2" / "224p.mp4")
    report = extract(here, out, backbone, device="cpu", workers=1)
    assert report.frames == 750
    assert not np.array_equal(report.store.windows("clip_2"), before)
    np.testing.assert_array_equal(report.store.windows("clip_2"), report.store.windows("clip_1"))


def test_another_backbone_is_refused(split: Path, expected: Path, backbone: Backbone, tmp_path: Path) -> None:
    other = small_backbone(1)
    with pytest.raises(InputError, match=r"holds features of the backbone small-0 .* not of small-1"):
        extract(split, expected, other, device="cpu")
    with pytest.raises(InputError, match="made with every 125, not 25"):
        extract(split, expected, backbone, every=25, device="cpu")
    begun = tmp_path / "begun"
    shutil.copytree(split / "clip_1", tmp_path / "bad" / "clip_1")
    (tmp_path / "bad" / "clip_1" / "224p.mp4").write_bytes(b"no video")
    with pytest.raises(InputError, match="none of its 1 video"):
        extract(tmp_path / "bad", begun, backbone, device="cpu", workers=1)
    assert not (begun / "parts").exists()  # nothing was made, so it holds nothing
    Parts(begun).begin(Header(backbone.identity, 33, backbone.config.width))
    with pytest.raises(InputError, match="holds features of the backbone small-0"):
        extract(split, begun, other, device="cpu")


def test_bad_videos_are_listed_and_the_others_done(
    split: Path, backbone_folder: Path, ballcast: Callable, tmp_path: Path
) -> None:
    here = tmp_path / "split"
    shutil.copytree(split / "clip_1", here / "clip_1")
    (here / "clip_2").mkdir()
    (here / "clip_2" / "224p.mp4").write_bytes(b"<html>not found</html>")
    write_video(here / "clip_3" / "224p.mp4", 700, 3)
    (here / "clip_4").mkdir()
    done = ballcast("extract", here, "store", "--backbone", backbone_folder, "--device", "cpu", "--workers", 1)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    store = FeatureStore.open(tmp_path / "store")
    assert store.names == ("clip_1",)
    reasons = {failure.name: failure.reason for failure in store.manifest.failed}
    assert list(reasons) == ["clip_2", "clip_3", "clip_4"]
    assert "web page" in reasons["clip_2"]
    assert "has 700 frames at 25 fps, a clip must have 750" in reasons["clip_3"]
    assert "no such file" in reasons["clip_4"]
    assert done.stderr.count("failed: ") == 3
    shutil.copy(here / "clip_1" / "224p.mp4", here / "clip_2" / "224p.mp4")
    shutil.rmtree(here / "clip_3")
    shutil.rmtree(here / "clip_4")
    done = ballcast("extract", here, "store", "--backbone", backbone_folder, "--device", "cpu", "--workers", 1)
    assert done.returncode == 0, done.stderr
    assert "750 frames in" in done.stdout  # clip_1 was not done again
    assert FeatureStore.open(tmp_path / "store").names == ("clip_1", "clip_2")


def test_videos_of_any_length(backbone: Backbone, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    write_video(folder / "game 10.mp4", 300, 5)
    write_video(folder / "game 9.mp4", 1000, 6)
    write_video(folder / "short.mp4", 100, 7)
    (folder / "notes.txt").write_text("not a video")
    report = extract(folder, tmp_path / "store", backbone, device="cpu", workers=1)
    store = report.store
    assert store.names == ("game 9", "game 10")
    assert store.windows("game 9").shape[0] == 8  # 1000 frames
    assert store.starts("game 10") == (0, 125)
    assert [failure.name for failure in report.failed] == ["short"]
    assert "has 100 frames at 25 fps, one window needs 125" in report.failed[0].reason
    video = VideoFile(folder / "game 9.mp4").read(0, 1000)
    windows = BatchEncoder(backbone, compiled=False).windows(video, store.starts("game 9")).to(torch.float16)
    np.testing.assert_array_equal(store.windows("game 9"), windows)
    alone = extract(folder / "game 10.mp4", tmp_path / "alone", backbone, device="cpu", workers=1).store
    assert alone.names == ("game 10",)
    np.testing.assert_array_equal(alone.windows("game 10"), store.windows("game 10"))


def test_one_window_a_second(split: Path, backbone: Backbone, tmp_path: Path) -> None:
    shutil.copytree(split / "clip_1", tmp_path / "split" / "clip_1")
    store = extract(tmp_path / "split", tmp_path / "store", backbone, every=25, device="cpu", workers=1).store
    assert store.window_starts == tuple(range(0, 626, 25))
    assert store.windows("clip_1").shape[:2] == (26, 33)


def test_sources(tmp_path: Path, backbone: Backbone) -> None:
    with pytest.raises(InputError, match="names no file or folder"):
        extract(tmp_path, Path(), backbone)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/store: cannot be written, since a part of its path is a file"):
        extract(tmp_path, tmp_path / "file" / "store", backbone)
    with pytest.raises(InputError, match="no such file or folder"):
        find_sources(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no videos"):
        find_sources(tmp_path)
    (tmp_path / "train" / "clip_1").mkdir(parents=True)
    with pytest.raises(InputError, match=r"give one of its splits, such as .*train"):
        find_sources(tmp_path)
    for name in ("224p.mp4", "720p.mp4"):
        (tmp_path / "train" / "clip_1" / name).touch()
    with pytest.raises(InputError, match="has 2 videos"):
        find_sources(tmp_path / "train")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").touch()
    (tmp_path / "a.mp4").touch()
    with pytest.raises(InputError, match="not empty and not a feature store"):
        extract(tmp_path / "a.mp4", tmp_path / "full", backbone)
    (tmp_path / "a.mkv").touch()
    assert [source.name for source in find_sources(tmp_path)] == ["a.mkv", "a.mp4"]


def test_the_command_needs_a_backbone(ballcast: Callable, clean_failure: Callable, tmp_path: Path) -> None:
    clean_failure(ballcast("extract", tmp_path, "store"), "--backbone", "a ballcast backbone")
    clean_failure(ballcast("extract", tmp_path, "store", "--backbone", "nowhere"), "nowhere", "no such folder")


def test_import_from_the_command_line(ballcast: Callable, clean_failure: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "npy"
    folder.mkdir()
    np.save(folder / "clip_1.npy", np.zeros((6, 33, 4), np.float32))
    nothing = {"observation": [], "anticipation": []}
    videos = [{"annotations": nothing, "path": f"clip_{i}/224p.mp4", "input_type": "video"} for i in (1, 2)]
    (folder / "Labels-ball.json").write_text(json.dumps({"version": "1.0", "date": "2025.06.06", "videos": videos}))
    command = ("data", "import", folder, "store", "--name", "mine")
    clean_failure(ballcast(*command), "clip_2.npy missing")
    np.save(folder / "clip_2.npy", np.ones((6, 33, 4), np.float32))
    done = ballcast(*command)
    assert done.returncode == 0, done.stderr
    assert "2 clips, 6 windows of 33 × 4" in done.stdout

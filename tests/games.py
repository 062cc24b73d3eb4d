"""Tiny labelled games for the tests of spotting: noise in which an action is a bright block where its class says."""

import json
from pathlib import Path

import av
import numpy as np

from ballcast.core.actions import ACTIONS
from ballcast.core.events import Event

HEIGHT, WIDTH = 32, 64


def write_video(path: Path, frames: np.ndarray, *, exact: bool = False, grass: bool = False) -> Path:
    """An H.264 video at 25 fps of frames (T, H, W) uint8; `exact`: without any loss; `grass`: green, and not gray."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264",
            rate=25,
            options={"g": "12", "bf": "0", "preset": "ultrafast", "qp" if exact else "crf": "0" if exact else "10"},
        )
        stream.height, stream.width = frames.shape[1:]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for number, y in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(y, format="gray").reformat(format="yuv420p")
            for plane, hue in zip(frame.planes[1:], (100, 105), strict=True):
                if grass:
                    plane.update(bytes([hue]) * plane.buffer_size)
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def as_coded(frames: np.ndarray) -> np.ndarray:
    """What a decoder gives for frames (T, H, W) uint8, but for the codec's own loss: the range of broadcasts."""
    return 16 + frames * (219 / 255)


def make_events(frames: int, seed: int, classes: tuple[int, ...] = (0, 1)) -> tuple[Event, ...]:
    """An action about every second, of a few classes, on whole frames."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(20, 35, frames))
    return tuple(
        Event(ACTIONS[classes[rng.integers(len(classes))]], int(t) * 40, "home") for t in times if 15 < t < frames - 15
    )


def draw_game(frames: int, events: tuple[Event, ...], seed: int = 0) -> np.ndarray:
    """(T, H, W) uint8: dim noise; around each action, a bright block in the columns of its class."""
    noise = np.random.default_rng(seed).integers(40, 80, (frames, HEIGHT, WIDTH)).astype(np.uint8)
    for event in events:
        middle, left = event.position_ms // 40, 6 * event.action
        noise[max(middle - 6, 0) : middle + 7, 8:24, left : left + 6] = 230
    return noise


def make_matches(folder: Path, splits: tuple[str, ...] = ("train", "valid"), frames: int = 300) -> Path:
    """Simulated matches as `matches.json` describes them, one a split."""
    matches = []
    for n, split in enumerate(splits):
        events = make_events(frames, seed=n)
        write_video(folder / f"match_{n:03}.mp4", draw_game(frames, events, seed=n))
        actions = [
            {"label": e.label, "position": e.position_ms, "team": "home", "visibility": "visible"} for e in events
        ]
        matches.append({"video": f"match_{n:03}.mp4", "split": split, "frames": frames, "actions": actions})
    (folder / "matches.json").write_text(json.dumps(matches))
    return folder


def make_clips(folder: Path, count: int, seed: int) -> Path:
    """A split of SN-BAA: so many clips of one game, 5 s apart, with its labels; the frames they share are equal."""
    from ballcast.core.events import Clip
    from ballcast.data.labels.soccernet import write_labels

    frames = 125 * (count - 1) + 875  # the 5 s after the last clip are labelled, but not shown
    events = make_events(frames, seed)
    drawn, clips = draw_game(frames, events, seed), []
    for n in range(count):
        inside = [Event(e.label, e.position_ms - 5000 * n, e.team) for e in events]
        past = tuple(e for e in inside if 0 <= e.position_ms < 30_000)
        clips.append(Clip(f"clip_{n + 1}", past, tuple(e for e in inside if 30_000 <= e.position_ms < 35_000)))
        write_video(folder / f"clip_{n + 1}" / "224p.mp4", drawn[125 * n : 125 * n + 750], exact=True)
    write_labels(folder / "Labels-ball.json", clips)
    return folder

"""Small feature stores with labels, made up: the features of a clip tell what comes, or nothing at all."""

from pathlib import Path

import numpy as np

from ballcast.core.actions import ACTIONS
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.events import Clip, Event
from ballcast.data.labels.soccernet import write_labels
from ballcast.features.store import LABELS, FeatureStore, Header
from ballcast.features.store_writer import StoreWriter

WINDOWS, CLIPS, WIDTH = 6, 5, 24
SMALL = [  # overrides that make a recipe fit: a model that trains in seconds
    f"model.clips={CLIPS}",
    f"model.width={WIDTH}",
    "model.hierarchy.dim=32",
    "model.hierarchy.encoder_heads=4",
    "model.hierarchy.encoder_ffn=64",
    "model.hierarchy.steps=2",
    "model.hierarchy.decoder_layers=2",
    "model.hierarchy.decoder_heads=4",
    "model.hierarchy.decoder_ffn=64",
    "model.faantra.dim=32",
    "model.faantra.heads=4",
    "model.faantra.ffn=64",
]


def make_clips(count: int, seed: int, most: int = 4) -> list[Clip]:
    """Clips with 1 to `most` events to come, in different bins, all ten actions in turn, and some before."""
    rng = np.random.default_rng(seed)
    clips, turn = [], 0
    for n in range(count):
        times = np.sort(rng.choice(31, rng.integers(1, most + 1), replace=False)) * 160 + 30_080
        coming = []
        for t in times:
            coming.append(Event(ACTIONS[turn % len(ACTIONS)], int(t), "home"))
            turn += 1
        past = tuple(Event(ACTIONS[rng.integers(10)], int(t), "away") for t in np.sort(rng.integers(0, 30_000, 8)))
        clips.append(Clip(f"clip_{n + 1}", past, tuple(coming)))
    return clips


def make_features(clips: list[Clip], seed: int, *, telling: bool = True) -> np.ndarray:
    """(clips, W, N, D) float16 noise; if `telling`, the last window carries the coming actions and their times.

    Clip m of that window holds the m-th event: a one-hot of its action and a smooth code of its time.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(0, 0.3, (len(clips), WINDOWS, CLIPS, WIDTH))
    for n, clip in enumerate(clips if telling else ()):
        for m, event in enumerate(clip.anticipation[:CLIPS]):
            when = (event.position_ms - 30_000) / 5_000
            code = np.concatenate([np.eye(10)[event.action] * 2, np.cos(np.pi * when * np.arange(1, WIDTH - 9))])
            features[n, -1, m] += 2 * code[:WIDTH]
    return features.astype(np.float16)


def write_store(
    folder: Path, clips: list[Clip], features: np.ndarray, *, every: int = 125, backbone: str = "made up"
) -> FeatureStore:
    """A store of `features` (clips, M, N, D) with its labels beside them."""
    header = Header(BackboneIdentity(backbone, backbone), features.shape[2], features.shape[3], every)
    folder.mkdir(parents=True, exist_ok=True)
    writer = StoreWriter(folder, header)
    for clip, block in zip(clips, features, strict=True):
        writer.add(clip.name, block, source=f"{clip.name}.mp4", size=1, mtime_ns=1, resolution=(224, 398))
    write_labels(folder / LABELS, clips)
    return writer.finish()


def make_split(folder: Path, count: int, seed: int, *, telling: bool = True) -> FeatureStore:
    clips = make_clips(count, seed)
    return write_store(folder, clips, make_features(clips, seed, telling=telling))


def make_game(folder: Path, seconds: int, seed: int, *, every: int = 25) -> FeatureStore:
    """A game as SN-BAA cuts it: a clip every 5 s, windows every `every` frames, one action about every 2 s.

    A window's features are a random code of its place in the game, so that shared windows are equal.
    """
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(500, 3500, seconds))
    game = [(int(t), ACTIONS[rng.integers(10)]) for t in times if t < 1000 * seconds]
    count = (seconds - 35) // 5 + 1
    clips = []
    for n in range(count):
        inside = [Event(a, t - 5000 * n, "home") for t, a in game if 0 <= t - 5000 * n < 35_000]
        past = tuple(e for e in inside if e.position_ms < 30_000)
        clips.append(Clip(f"clip_{n + 1}", past, tuple(e for e in inside if e.position_ms >= 30_000)))
    starts = range(0, 626, every)
    code = np.random.default_rng(seed + 1).normal(0, 1, (25 * seconds + 1, CLIPS, WIDTH)).astype(np.float16)
    features = np.stack([[code[125 * n + s] for s in starts] for n in range(count)])
    return write_store(folder, clips, features, every=every)

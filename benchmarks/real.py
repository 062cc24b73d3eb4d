"""Measure an end-to-end model on real television clips that somebody labelled: what it spots and what it expects.

    python -m benchmarks.real CLIPS [--model FOLDER] [--record real.json] [--picture real.png]

CLIPS holds clips (`*.mp4`) and labels.json:
{"clip.mp4": {"events": [{"t": 1.22, "label": "PASS"}, …], "covered": [[0.0, 9.0], …]}}, times in seconds; only what
lies in `covered` is measured. The clips are broadcasters' property: they are never part of the project.

Spotting: the frame AUC, that is the chance that a frame within 0.3 s of an action scores above one that is not; and the
average precision of peaks within 0.5 and 1 s, beside that of the same peaks at random times. Anticipation: the AUC of
the probability that an action comes within 1 and 5 s. Intervals: 95 %, resampling blocks of 6 s.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS, FPS, FRAME_MS
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.errors import InputError
from ballcast.core.events import GRID_BINS
from ballcast.core.files import read_json, write_json
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.frame_network import mirror
from ballcast.metrics.spotting import suppress_non_maxima
from ballcast.model.end_to_end import EndToEnd, load_end_to_end
from ballcast.model.postprocess import SlotProbabilities
from ballcast.video.file import VideoFile
from ballcast.video.luma import FrameResizer

LABELS = "labels.json"
GROUPS = {"pass": (0, 3, 5), "drive": (1,), "header": (2,), "shot": (6,), "any": tuple(range(len(ACTIONS)))}
NEAR_S = 0.3  # a frame this near to an action belongs to it
TOLERANCES_S = (0.5, 1.0)
HORIZONS_S = (1, 5)
BLOCK_S = 6.0  # what is resampled
APART_MS = 400  # of two peaks of a class
RESAMPLES = 500

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledClip:
    """A clip: its file, its actions as (seconds, class), and the stretches that are labelled."""

    path: Path
    events: tuple[tuple[float, int], ...]
    covered: tuple[tuple[float, float], ...]

    def times_of(self, classes: Sequence[int]) -> Floats:
        return np.array([t for t, c in self.events if c in classes])

    def is_covered(self, times_s: Floats) -> Bools:
        inside = np.zeros(len(times_s), bool)
        for begin, end in self.covered:
            inside |= (times_s >= begin) & (times_s <= end)
        return inside


@dataclass(frozen=True)
class ClipScores:
    """What a model gives along a clip.

    - `times_s` (n,), `spotted` (n, C): the probability of each action at each stack.
    - `ends_s` (m,), `intensity` (m, C, 32): expected actions in the 5 s after each of these times.
    """

    times_s: Floats
    spotted: Floats
    ends_s: Floats
    intensity: Floats


def read_clips(folder: Path) -> list[LabelledClip]:
    tree = read_json(folder / LABELS, "labels of real clips")
    clips = []
    for name, entry in sorted(tree.items()):
        if not (folder / name).is_file():
            raise InputError(f"{folder / LABELS}: names {name}, which is not in {folder}")
        events = tuple(sorted((float(e["t"]), ACTIONS.index(e["label"])) for e in entry["events"]))
        covered = tuple((float(a), float(b)) for a, b in entry["covered"])
        clips.append(LabelledClip(folder / name, events, covered))
    return clips


def read_frames(model: EndToEnd, path: Path) -> torch.Tensor:
    """All frames at 25 fps as the model sees them: (T, H, W) or, in colour, I420 (T, 3H/2, W), uint8."""
    height, width = model.backbone.metadata["picture_size"]
    fit = FrameResizer((height, width), colour=model.colour)
    with VideoFile(path) as video:
        return torch.from_numpy(np.stack([fit(frame) for frame in video.frames(colour=model.colour)]))


@torch.no_grad()
def run_along(model: EndToEnd, frames: torch.Tensor, *, every: int = 6) -> ClipScores:
    """Run the model on windows that end every `every` frames, each averaged with its mirrored twin.

    Args:
        model: without a temporal shift, so that each stack goes through the encoder once.
        frames: of a clip, as `read_frames` gives them.
        every: a multiple of the encoder's stride.
    """
    stride = model.backbone.config.stride
    if model.backbone.config.shift != "none":
        raise InputError("this benchmark is for encoders without a temporal shift")
    ends = np.arange(model.span, len(frames) + 1, every)
    both = (frames, mirror(frames, colour=model.colour))
    features = [BatchEncoder(model.backbone, compiled=False).snippets(seen) for seen in both]  # (n, D)
    total = np.zeros((len(features[0]), len(ACTIONS)))
    mass = np.zeros((len(features[0]), 1))
    middle = 1.0 + np.minimum(np.arange(model.stacks), np.arange(model.stacks)[::-1])[:, None]
    inflation = [model.anticipator.metadata.get("pos_weight", 1.0)] * len(ACTIONS)
    intensity = np.zeros((len(ends), len(ACTIONS), GRID_BINS))
    for i, end in enumerate(ends):
        at = ((end - model.span + model.stack_offsets) // stride)[-model.stacks :]
        read = (end - model.span + model.stack_offsets) // stride
        for of_view in features:
            slots, _ = model(of_view[read][None])
            assert slots.presence is not None
            total[at] += slots.presence[0].sigmoid().numpy() * middle / 2
            mass[at] += middle / 2
            intensity[i] += SlotProbabilities.from_slots(slots).intensity(inflation)[:, 0] / 2
    seen_at = np.flatnonzero(mass[:, 0])
    times = (seen_at * stride + model.middles[0]) / FPS
    return ClipScores(times, total[seen_at] / mass[seen_at], ends / FPS, intensity)


def auc(positive: Bools, scores: Floats) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    count = int(positive.sum())
    if count in (0, len(positive)):
        return math.nan
    _, rank, ties = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(ties) - (ties - 1) / 2
    total = mean_rank[rank][positive].sum()
    return float((total - count * (count + 1) / 2) / (count * (len(positive) - count)))


def with_interval(measure: Callable[[list[int]], float], blocks: int, seed: int = 0) -> list[float] | None:
    """A measure over all blocks, and its 95 % interval over resampled blocks; None where it is not defined."""
    if not blocks or math.isnan(measure(list(range(blocks)))):
        return None
    rng = np.random.default_rng(seed)
    values = [measure(rng.integers(0, blocks, blocks).tolist()) for _ in range(RESAMPLES)]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return [round(v, 4) for v in (measure(list(range(blocks))), float(low), float(high))]


def auc_of_blocks(blocks: Sequence[tuple[Bools, Floats]]) -> list[float] | None:
    """AUC of blocks of (positive, score), with its interval."""

    def measure(chosen: list[int]) -> float:
        return auc(np.concatenate([blocks[i][0] for i in chosen]), np.concatenate([blocks[i][1] for i in chosen]))

    return with_interval(measure, len(blocks))


def in_blocks(times_s: Floats, *columns: Any) -> Iterator[tuple[Any, ...]]:
    """Split columns along a clip into blocks of `BLOCK_S`."""
    number = (times_s // BLOCK_S).astype(int)
    for block in np.unique(number):
        chosen = number == block
        yield tuple(column[chosen] for column in columns)


def near(times_s: Floats, events_s: Floats, within_s: float) -> Bools:
    return np.asarray(np.abs(times_s[:, None] - events_s).min(1, initial=np.inf) <= within_s)


def spotting(clips: Sequence[LabelledClip], scores: Sequence[ClipScores]) -> dict[str, Any]:
    """Frame AUC of each group of classes, over all clips and by clip."""
    result: dict[str, Any] = {}
    for name, classes in GROUPS.items():
        blocks: list[tuple[Bools, Floats]] = []
        by_clip = {}
        for clip, along in zip(clips, scores, strict=True):
            inside = clip.is_covered(along.times_s)
            positive = near(along.times_s, clip.times_of(classes), NEAR_S)[inside]
            values = along.spotted[inside][:, classes].sum(1)
            if positive.any() and not positive.all():
                by_clip[clip.path.name] = round(auc(positive, values), 3)
            blocks += in_blocks(along.times_s[inside], positive, values)
        count = sum(len(clip.times_of(classes)) for clip in clips)
        result[name] = {"events": count, "auc": auc_of_blocks(blocks), "by_clip": by_clip}
    return result


def precision(clips: Sequence[LabelledClip], scores: Sequence[ClipScores]) -> dict[str, Any]:
    """Average precision of peaks of passes and drives, beside peaks at random times (mean and deviation of 50)."""
    result: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    for name in ("pass", "drive"):
        peaks = [peaks_of(clip, along, GROUPS[name]) for clip, along in zip(clips, scores, strict=True)]
        truth = [clip.times_of(GROUPS[name]) for clip in clips]
        for tolerance in TOLERANCES_S:
            chance = []
            for _ in range(50):
                moved = []
                for clip, (times, values) in zip(clips, peaks, strict=True):
                    begin, end = clip.covered[0][0], clip.covered[-1][1]
                    moved.append((rng.uniform(begin, end, len(times)), rng.permutation(values)))
                chance.append(average_precision(moved, truth, tolerance))
            result[f"{name} within {tolerance} s"] = {
                "ap": round(average_precision(peaks, truth, tolerance), 4),
                "random": [round(float(np.mean(chance)), 4), round(float(np.std(chance)), 4)],
            }
    return result


def peaks_of(clip: LabelledClip, along: ClipScores, classes: Sequence[int]) -> tuple[Floats, Floats]:
    """Times and scores of the peaks of a group of classes in what is labelled."""
    values = along.spotted[:, classes].sum(1, keepdims=True)
    found = suppress_non_maxima(values, np.rint(along.times_s * 1000).astype(np.int64), apart_ms=APART_MS, smooth_ms=0)
    times = found.position_ms / 1000
    inside = clip.is_covered(times)
    return times[inside], np.asarray(found.score, np.float64)[inside]


def average_precision(peaks: Sequence[tuple[Floats, Floats]], truth: Sequence[Floats], tolerance_s: float) -> float:
    """Area under precision over recall: peaks, best first, each take the nearest free action within the tolerance."""
    entries = sorted(
        ((score, i, t) for i, (times, scores) in enumerate(peaks) for t, score in zip(times, scores, strict=True)),
        reverse=True,
    )
    free = [list(times) for times in truth]
    total = sum(map(len, truth))
    hits = 0
    area = 0.0
    for rank, (_, i, t) in enumerate(entries, start=1):
        best = min(free[i], key=lambda e: abs(e - t), default=None)
        if best is not None and abs(best - t) <= tolerance_s:
            free[i].remove(best)
            hits += 1
            area += hits / rank / total
    return area


def anticipation(clips: Sequence[LabelledClip], scores: Sequence[ClipScores]) -> dict[str, Any]:
    """AUC of what is expected within 1 and 5 s of the end of each window, where that is labelled."""
    result: dict[str, Any] = {}
    for name, classes in GROUPS.items():
        for horizon in HORIZONS_S:
            blocks: list[tuple[Bools, Floats]] = []
            for clip, along in zip(clips, scores, strict=True):
                inside = clip.is_covered(along.ends_s) & clip.is_covered(along.ends_s + horizon)
                wait = clip.times_of(classes) - along.ends_s[:, None]
                comes = np.asarray(((wait > 0) & (wait <= horizon)).any(axis=1))
                bins = math.ceil(horizon * FPS / 4)
                expected = along.intensity[:, classes, :bins].sum((1, 2))
                blocks += in_blocks(along.ends_s[inside], comes[inside], expected[inside])
            moments = sum(len(b[0]) for b in blocks)
            share = round(float(np.concatenate([b[0] for b in blocks]).mean()), 4) if moments else None
            result[f"{name} within {horizon} s"] = {"moments": moments, "share": share, "auc": auc_of_blocks(blocks)}
    return result


def draw(path: Path, clips: Sequence[LabelledClip], scores: Sequence[ClipScores]) -> None:
    """Spotting scores of passes and drives over time, with the labels as lines, a row for each clip."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.3 * len(clips)), layout="constrained")
    rows = figure.subplots(len(clips), 1, squeeze=False)[:, 0]
    for axes, clip, along in zip(rows, clips, scores, strict=True):
        for name, colour in (("pass", "#1f77b4"), ("drive", "#d95f02")):
            axes.plot(along.times_s, along.spotted[:, GROUPS[name]].sum(1), color=colour, lw=1, label=name)
            axes.vlines(clip.times_of(GROUPS[name]), 0, 1, color=colour, lw=1, ls="--")
        axes.set(ylim=(0, 1), ylabel=clip.path.stem[:12])
    rows[0].legend(loc="upper right", ncols=2, fontsize=8)
    rows[-1].set_xlabel("s; dashed: labels")
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path, help="folder with clips and labels.json")
    parser.add_argument("--model", type=Path, help="folder of an end-to-end model; without it, the embedded one")
    parser.add_argument("--record", type=Path, help="write the figures as JSON")
    parser.add_argument("--picture", type=Path, help="draw the scores along the clips (.png)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load_end_to_end(args.model) if args.model else load_end_to_end(MODEL, BACKBONE)
    clips = read_clips(args.clips)
    scores = []
    kept = []
    for clip in clips:
        frames = read_frames(model, clip.path)
        if len(frames) < model.span:
            print(f"{clip.path.name}: {len(frames) * FRAME_MS / 1000:.1f} s, shorter than a window; left out")
            continue
        kept.append(clip)
        scores.append(run_along(model, frames))
        print(f"{clip.path.name}: {len(frames) * FRAME_MS / 1000:.1f} s", flush=True)
    covered = sum(b - a for clip in kept for a, b in clip.covered)
    record = {
        "model": str(args.model or "embedded"),
        "clips": len(kept),
        "seconds": round(covered, 1),
        "spotting": spotting(kept, scores),
        "precision": precision(kept, scores),
        "anticipation": anticipation(kept, scores),
    }
    print(json.dumps(record, indent=1))
    if args.record:
        write_json(args.record, record, indent=1)
    if args.picture:
        draw(args.picture, kept, scores)


if __name__ == "__main__":
    main()

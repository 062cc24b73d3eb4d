"""Make everything embedded in the package, from trained weights and the simulated matches beside the checkout.

    python -m tools.make_assets runs/e2e/best_backbone runs/e2e/best ../shared/data/simbaa --work /tmp/assets

Writes below src/ballcast/samples (or --out):

backbone/, anticipator/   the weights in half precision
test/                     an excerpt of a test match, cut without encoding it again, and the labels of its clips
train/, valid/            the labels of the training matches' clips, and of the validation match's
features/{train,valid}/   their windows every 5 s, along the strongest directions of the training matches' features

An end-to-end model brings its frame encoder as backbone (a run's best_backbone and best), and its counts of actions
are a likelihood's. Another anticipator should be trained with data.drop_windows=0.1, since it is shown videos from
their first seconds on; what its sampler taught about how often actions come is taken out of its biases.

The features are those of --features, a backbone as the paper's; without it, those that are there stay, with their
labels. All together stay under 40 MB, or nothing is replaced. Features are computed into --work and found there again.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from safetensors.torch import load_file, save

from ballcast.core.actions import ACTIONS, END_MS, FPS, OBSERVED_MS
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.checks import CHECKSUM_KEY, KEY
from ballcast.core.embedded import SAMPLES
from ballcast.core.events import Clip, Event
from ballcast.core.files import read_json, write_pair
from ballcast.data.labels.games import MATCHES, Match, read_matches
from ballcast.data.labels.soccernet import LABELS, write_labels
from ballcast.data.samples.windows import STEP_MS, WindowSet, cut_clip, shift
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store import FeatureStore, Header
from ballcast.features.store_writer import StoreWriter
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.inference.tuning import run_models
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import SlotProbabilities
from ballcast.video.file import VideoFile
from benchmarks.game_windows import game_windows

CONFIG, WEIGHTS = "config.json", "model.safetensors"
ROUNDS = 100  # of corrections to the biases; they settle after a few
LIMIT = 40_000_000  # bytes of all embedded files; the wheel may have 45 MB
DATE = "2026.11.15"
PARTS = ("backbone", "anticipator", "test")
DEMO = ("train", "valid", "features")  # what the demo trains on
console = Console(highlight=False)


def clips_of(matches: Sequence[Match]) -> list[Clip]:
    """Every match's clips, one every 5 s as SN-BAA cuts its games, numbered through."""
    clips: list[Clip] = []
    for match in matches:
        for start_ms in range(0, match.frames * 1000 // FPS - END_MS + 1, STEP_MS):
            clips.append(cut_clip(match.events, start_ms, f"clip_{len(clips) + 1}"))
    return clips


def read_config(folder: Path) -> dict[str, Any]:
    """A model's config, without the checksums of its files, which are about to change."""
    config = read_json(folder / CONFIG, "model's config")
    return {key: value for key, value in config.items() if key not in (KEY, CHECKSUM_KEY)}


def rewrite(folder: Path, state: dict[str, torch.Tensor] | None = None, **metadata: Any) -> None:
    """Write other weights, or more metadata, into a model's folder."""
    weights = (folder / WEIGHTS).read_bytes() if state is None else save(state)
    config = read_config(folder)
    config["metadata"] = {**config.get("metadata", {}), **metadata}
    write_pair(folder, WEIGHTS, weights, CONFIG, config)


def halve(source: Path, target: Path) -> None:
    """A model's folder in half precision; vectors (norms' statistics, biases) are small and stay as they are."""
    state = load_file(source / WEIGHTS)
    halved = {k: v.half() if v.is_floating_point() and v.ndim > 1 else v for k, v in state.items()}
    for key, value in halved.items():
        if value.is_floating_point() and not value.isfinite().all():
            sys.exit(f"{source}: {key} does not fit into half precision")
    target.mkdir(parents=True)
    write_pair(target, WEIGHTS, save(halved), CONFIG, read_config(source))


def embed_models(backbone: Path, anticipator: Path, out: Path) -> Backbone:
    """Both models in half precision; the anticipator gets the hash that its backbone then has."""
    halve(backbone, out / "backbone")
    halve(anticipator, out / "anticipator")
    whole, half = Backbone.from_pretrained(backbone), Backbone.from_pretrained(out / "backbone")
    model = Anticipator.from_pretrained(out / "anticipator")
    trained_on = model.metadata.get("backbone", {}).get("hash")
    if trained_on not in (whole.hash, half.hash):
        sys.exit(f"{anticipator}: was trained on another backbone than {backbone}; give that one")
    recorded = {k: v for k, v in model.metadata["backbone"].items() if k != "folder"}  # of the run, not of the package
    games = list(half.identity.trained_on)
    rewrite(out / "anticipator", backbone={**recorded, "hash": half.hash, "name": half.name, "trained_on": games})
    frames = torch.randint(16, 235, (1, half.config.frames, 64, 96), generator=torch.manual_seed(0)).to(torch.uint8)
    with torch.inference_mode():
        a, b = whole.features(frames), half.features(frames)
    console.print(
        f"half precision moves the features by {float((a - b).abs().max() / a.abs().max()):.1e} of the largest"
    )
    return half


def tell_size(folder: Path, size: tuple[int, int] | None) -> None:
    """Write H, W of the pictures in training into a model's config, unless its run did."""
    if size and "picture_size" not in read_config(folder).get("metadata", {}):
        rewrite(folder, picture_size=list(size))


def taken_back(outputs: SlotProbabilities, real: np.ndarray, pos_weight: float) -> tuple[np.ndarray, float]:
    """Compute what to subtract from the biases of the class head, (C,), and of the objectness head, from these outputs.

    Right in number: with it, each action is expected as often as it came, `real` (C,). Found by repeated correction.
    """
    if real.sum() >= outputs.objectness.size:
        sys.exit(f"{real.sum()} actions come, and the model has {outputs.objectness.size} slots for them")
    classes, objectness = np.zeros(len(real)), 0.0
    for _ in range(ROUNDS):
        shares = outputs.classes * np.exp(-classes).astype(np.float32)
        shares /= shares.sum(-1, keepdims=True)
        corrected = SlotProbabilities(outputs.objectness - np.float32(objectness), shares, outputs.times)
        expected = corrected.intensity([pos_weight] * len(real)).sum((1, 2))
        classes += np.log((expected + 0.5) / (real + 0.5))  # an action that never comes stays possible
        objectness += np.log(expected.sum() / real.sum())
    return classes - classes.mean(), objectness


def make_natural(folder: Path, learned: WindowSet) -> None:
    """Take out of the heads' biases what the sampler taught about how often actions come, by the training windows.

    People look at these confidences, and actions shown 40 times too often are otherwise seen coming all the time.
    """
    model = Anticipator.from_pretrained(folder)
    (outputs,) = run_models([TorchRuntime(model)], [learned])
    classes, objectness = taken_back(outputs, learned.class_counts(), model.pos_weight)
    state = load_file(folder / WEIGHTS)
    for head, value in (("classes", classes), ("objectness", np.array([objectness]))):
        state[f"network.heads.{head}.bias"] -= torch.from_numpy(value)
    biases = {action: round(float(n), 3) for action, n in zip(ACTIONS, classes, strict=True)}
    rewrite(folder, state, sampler_taken_back={**biases, "any": round(objectness, 3)})
    shown = ", ".join(f"{action} {n:+.1f}" for action, n in biases.items())
    console.print(f"taken from the biases: {shown}; of any action {objectness:+.1f}")


def liveliest(match: Match, seconds: int) -> int:
    """Where the excerpt begins, in ms: where the most kinds of action come, then the most actions. Labels decide."""

    def events(start: int) -> list[Event]:
        return [e for e in match.events if start + OBSERVED_MS <= e.position_ms < start + 1000 * seconds]

    starts = range(0, match.frames * 1000 // FPS - 1000 * seconds + 1, STEP_MS)
    return max(starts, key=lambda start: (len({e.label for e in events(start)}), len(events(start))))


def copy_excerpt(video: Path, start_ms: int, seconds: int, target: Path) -> None:
    """The packets from `start_ms` on, as they are; both ends must be key frames."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(video)) as source, av.open(str(target), "w", options={"movflags": "faststart"}) as result:
        stream = source.streams.video[0]
        assert stream.time_base is not None
        copy = result.add_stream_from_template(stream)
        unit = float(stream.time_base) * 1000
        began = None
        source.seek(round(start_ms / unit), stream=stream)
        for packet in source.demux(stream):
            if packet.dts is None or packet.pts is None:
                continue
            if began is None:
                if not packet.is_keyframe or round(packet.pts * unit) != start_ms:
                    sys.exit(f"{video}: {start_ms} ms is no key frame")
                began = packet.pts
            if packet.is_keyframe and (packet.pts - began) * unit >= 1000 * seconds - 1:
                break
            packet.pts, packet.dts = packet.pts - began, packet.dts - began
            packet.stream = copy
            result.mux(packet)


def embed_excerpt(matches: Sequence[Match], simbaa: Path, seconds: int, out: Path) -> None:
    """The liveliest stretch of all test matches, and the labels of its clips."""
    test = [m for m in matches if m.split == "test"]
    match = max(test, key=lambda m: len({e.label for e in m.events}))
    start = liveliest(match, seconds)
    copy_excerpt(simbaa / match.video, start, seconds, out / "test" / "excerpt.mp4")
    inside = [shift(e, -start) for e in match.events if start <= e.position_ms < start + 1000 * seconds]
    clips = [
        cut_clip(inside, at, f"clip_{i + 1}") for i, at in enumerate(range(0, 1000 * seconds - END_MS + 1, STEP_MS))
    ]
    write_labels(out / "test" / LABELS, clips, date=DATE)
    events = sum(len(clip.anticipation) for clip in clips)
    console.print(
        f"excerpt: {match.video} from {start / 1000:.0f} s, {len(clips)} clips, {events} actions to anticipate"
    )


def features_of(matches: Sequence[Match], simbaa: Path, backbone: Backbone, work: Path, device: str) -> FeatureStore:
    """A store of whole matches, a window every 5 s, in `work`."""
    videos = work / "videos"
    videos.mkdir(parents=True, exist_ok=True)
    for match in matches:
        link = videos / match.video
        if not link.exists():
            link.symlink_to((simbaa / match.video).resolve())
    with Progress(console=console) as bar:
        task = bar.add_task("features", total=None)
        report = extract(
            videos,
            work / f"games-{backbone.hash[:12]}",
            backbone,
            device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    return report.store


def embed_features(games: FeatureStore, matches: Sequence[Match], directions: int, out: Path) -> None:
    """The windows of training and validation matches along the strongest directions of the training matches'."""
    names = {split: [Path(m.video).stem for m in matches if m.split == split] for split in ("train", "valid")}
    rows = np.concatenate([games.windows(name) for name in names["train"]]).reshape(-1, games.width).astype(np.float64)
    mean = rows.mean(0)
    strength, axes = np.linalg.eigh(np.cov(rows - mean, rowvar=False))  # ascending
    axes = axes[:, ::-1][:, :directions]
    kept = strength[::-1][:directions]
    scale = np.sqrt(kept.mean())
    console.print(
        f"{directions} of {games.width} directions keep {100 * kept.sum() / strength.sum():.1f} % of the variance"
    )
    header = games.manifest.header
    name = f"{header.backbone.name}, its {directions} strongest directions"
    identity = BackboneIdentity(sha256(f"{header.backbone.hash} {name}".encode()).hexdigest(), name, note="projected")
    for split, members in names.items():
        folder = out / "features" / split
        folder.mkdir(parents=True)
        writer = StoreWriter(folder, Header(identity, header.clips, directions, header.every))
        for member in members:
            windows = ((games.windows(member).astype(np.float64) - mean) @ axes / scale).astype(np.float16)
            writer.add(member, windows, source=f"{member}.mp4", size=0, mtime_ns=0)
        writer.finish()


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backbone", type=Path, help="folder of the trained backbone")
    parser.add_argument("anticipator", type=Path, help="folder of the anticipator trained on it")
    parser.add_argument("simbaa", type=Path, help="folder of the simulated matches, with matches.json")
    parser.add_argument("--out", type=Path, default=SAMPLES)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "ballcast-assets")
    parser.add_argument("--seconds", type=int, default=80, help="length of the excerpt, a multiple of 5")
    parser.add_argument("--features", type=Path, help="a backbone whose features the demo is to train on")
    parser.add_argument("--directions", type=int, default=40, help="features a clip that the demo trains on")
    parser.add_argument("--matches", type=int, default=7, help="training matches that the demo trains on")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    given = parser.parse_args()
    matches = read_matches(given.simbaa / MATCHES)
    train = [m for m in matches if m.split == "train"][: given.matches]
    valid = [m for m in matches if m.split == "valid"]
    given.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.work) as temporary:
        made = Path(temporary)
        backbone = embed_models(given.backbone, given.anticipator, made)
        embed_excerpt(matches, given.simbaa, given.seconds, made)
        model = Anticipator.from_pretrained(made / "anticipator")
        if model.config.kind != "dense":
            games = features_of([*train, *valid], given.simbaa, backbone, given.work, given.device)
            events = {Path(m.video).stem: m.events for m in train}
            make_natural(made / "anticipator", game_windows(games, events, model.config.windows, every_ms=STEP_MS))
        with VideoFile(given.simbaa / train[0].video) as video:
            for part in ("backbone", "anticipator"):
                tell_size(made / part, video.size)
        parts = PARTS
        if given.features is not None:
            write_labels(made / "train" / LABELS, clips_of(train), date=DATE)
            write_labels(made / "valid" / LABELS, clips_of(valid), date=DATE)
            network = Backbone.from_pretrained(given.features)
            games = features_of([*train, *valid], given.simbaa, network, given.work, given.device)
            embed_features(games, [*train, *valid], given.directions, made)
            parts = (*PARTS, *DEMO)
        for part in parts:
            console.print(f"{part:12s} {size(made / part) / 1e6:6.2f} MB")
        kept = [folder for folder in given.out.iterdir() if folder.name not in parts] if given.out.exists() else []
        total = size(made) + sum(map(size, kept))
        console.print(f"{'all':12s} {total / 1e6:6.2f} MB of {LIMIT / 1e6:.0f}")
        if total > LIMIT:
            sys.exit(
                f"too large by {(total - LIMIT) / 1e6:.2f} MB: take fewer --seconds or --directions; nothing written"
            )
        for part in parts:
            shutil.rmtree(given.out / part, ignore_errors=True)
            shutil.copytree(made / part, given.out / part)
    console.print(f"wrote {given.out}")


if __name__ == "__main__":
    main()

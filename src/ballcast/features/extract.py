"""Videos to a feature store: find them, cut them into pieces, compute what is missing, merge.

    extract(Path("snbaa/224p/train"), Path("features/train"), Backbone.load("my-backbone"))

Killed at any time and run again, it resumes, and the finished store is the same byte for byte.
"""

import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from ballcast.core.actions import FPS, WINDOW_FRAMES
from ballcast.core.backbone_config import trained_size
from ballcast.core.errors import BallcastError, BallcastWarning, InputError
from ballcast.core.files import exclusive_lock, make_parents, replacing
from ballcast.core.progress import ProgressCallback, no_progress
from ballcast.core.util import cores
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder, one_thread
from ballcast.features.device import choose_device
from ballcast.features.extract_workers import Decoders, choose_decoders, gpu_names, run_local, run_ray
from ballcast.features.stack_index import snippet_count
from ballcast.features.store import FILE_NAME, LABELS, Failure, FeatureStore, Header
from ballcast.features.store_writer import Parts, StoreWriter
from ballcast.features.videos import Outcome, Piece, Source, cut, find_sources, work
from ballcast.video.luma import Size, choose_size, fitted, show_size

ENLARGED = 1.5  # frames made this many times larger are warned of
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Report:
    """What an extraction did."""

    store: FeatureStore
    failed: tuple[Failure, ...]  # videos that gave no features
    frames: int  # decoded now, not before a resume
    seconds: float  # spent on them
    waiting: float  # share of the networks' time spent waiting for decoded frames
    decoders: str = ""  # what decoded them, and why, in a sentence


@dataclass(frozen=True)
class _Options:
    """How to extract; see `extract`."""

    every: int
    engine: Engine
    device: str
    workers: int | None
    decoder: str
    picture_size: Size | None  # H, W that frames are fitted into
    pad: int
    colour: bool  # frames are decoded in colour
    mirrored: bool  # left and right are exchanged
    cluster: str | None  # address of a Ray cluster


def extract(
    source: Path,
    out: Path,
    backbone: Backbone,
    *,
    every: int = WINDOW_FRAMES,
    engine: Engine = "local",
    device: str = "auto",
    workers: int | None = None,
    decoder: Literal["cpu", "cuda", "auto"] = "cpu",
    size: str | None = None,
    pad: int = FPS,
    mirrored: bool = False,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Report:
    """Make the store at `out`, or finish it.

    Args:
        source: a split of SN-BAA (folders clip_1, …), a folder of videos, or one video.
        out: the store's folder.
        backbone: the network.
        every: frames from one window to the next; 125 are the six windows of an official clip.
        engine: "local": this machine. "ray": Ray.
        device: "cpu", "cuda" or "auto".
        workers: processes on CPUs, decoding processes beside GPUs, by default as many as there are cores; actors of
            Ray, by default one for each core or GPU of the cluster.
        decoder: "cpu", "cuda" for NVDEC, which falls back to the CPU where it cannot and does not detect damage, or
            beside GPUs "auto": both, if a measurement on the first video shows that it helps.
        size: "trained" (the default): frames are brought to the size the backbone was trained at, with a warning if
            it does not know; "own": they stay as they are; or a width and height, "1280x720". See `choose_size`.
        pad: a clip of SN-BAA that lacks up to `pad` frames at its end gets black ones there; the store records it.
        mirrored: exchange left and right of the frames; the store records it.
        cluster: address of a running Ray cluster, which is then the engine. Machines that die are done without.
        progress: called with the frames done and in all.
    """
    if every <= 0:
        raise InputError(f"every must be a positive number of frames, not {every}")
    picture_size = choose_size(size, trained_size(backbone.metadata), backbone.name)
    make_parents(out)
    device = choose_device(device, ("cuda", "cpu")).type
    engine = "ray" if cluster is not None else engine
    colour = backbone.config.colour
    options = _Options(every, engine, device, workers, decoder, picture_size, pad, colour, mirrored, cluster)
    lock = out.with_name(f".{out.name}.lock")  # two extractions would take each other's pieces away
    with exclusive_lock(out, lock, f"{out}: another extraction is at work there; wait for it, or give another folder"):
        return _extract(source, out, backbone, options, progress)


def _extract(source: Path, out: Path, backbone: Backbone, options: _Options, progress: ProgressCallback) -> Report:
    precision = "fp16" if options.device == "cuda" else "fp32"
    preprocessing = replace(backbone.preprocessing(precision, options.picture_size), mirrored=options.mirrored)
    config = backbone.config
    header = Header(backbone.identity, snippet_count(config), config.width, options.every, preprocessing=preprocessing)
    sources = find_sources(source)
    parts = Parts(out)
    if out.is_dir() and any(out.iterdir()) and not parts.folder.is_dir() and not (out / FILE_NAME).is_file():
        raise InputError(f"{out}: is not empty and not a feature store; give a new folder")
    finished = _finished(out, header)
    planned, failures = _plan(sources, options.every)
    _require_some(source, planned, failures)
    pieces = [piece for video in planned.values() for piece in video]
    if finished:
        _require_all_there(finished, source, planned, failures)
    if finished and not failures and _unchanged(finished, sources):
        parts.remove()
        _copy_labels(source, out)
        return Report(finished, (), 0, 0.0, 0.0)
    parts.begin(header)
    if finished:
        parts.unpack(finished, pieces)
    frames, seconds, waiting, decoders = _compute(backbone, parts, pieces, failures, options, progress)
    store = _merge(source, out, header, planned, failures, parts)
    return Report(store, store.manifest.failed, frames, seconds, waiting, decoders)


def _compute(
    backbone: Backbone,
    parts: Parts,
    pieces: list[Piece],
    failures: dict[str, str],
    options: _Options,
    progress: ProgressCallback,
) -> tuple[int, float, float, str]:
    """Compute the pieces not kept yet; add to `failures`. Returns frames, seconds, share of waiting, the decoders."""
    todo = [
        replace(
            piece,
            picture_size=options.picture_size,
            pad=options.pad,
            colour=options.colour,
            mirrored=options.mirrored,
        )
        for piece in pieces
        if not parts.has(piece)
    ]
    if not todo:
        return 0, 0.0, 0.0, ""
    _warn_of_first(todo[0], options.decoder)
    decoders = _decoders(todo, options)
    frames = 0
    waited = 0.0
    computed = 0.0
    began = time.perf_counter()
    total = done = sum(piece.stop - piece.start for piece in pieces)
    done -= sum(piece.stop - piece.start for piece in todo)
    progress(done, total)
    saved = parts.folder / "backbone"
    backbone.save_pretrained(saved)
    for outcome in _run(backbone, saved, todo, options, decoders):
        if outcome.features is None:
            failures.setdefault(outcome.piece.source.name, outcome.reason)
        else:
            parts.write(outcome.piece, outcome.features, outcome.resolution, outcome.padded)
        frames += outcome.frames
        waited += outcome.waited
        computed += outcome.computed
        done += outcome.piece.stop - outcome.piece.start
        progress(done, total)
    return frames, time.perf_counter() - began, waited / (waited + computed or 1), decoders.why


def _decoders(todo: list[Piece], options: _Options) -> Decoders:
    """What decodes for each network. A network on a CPU has one decoder: there are as many networks as cores."""
    if options.device == "cpu" or (len(todo) == 1 and options.engine == "local"):
        return Decoders(0, 1) if options.decoder == "cuda" else Decoders(1, 0)
    gpus = max(1, len(gpu_names()))
    workers = cores() // gpus if options.engine == "ray" else (options.workers or cores()) // gpus
    return choose_decoders(todo[0], options.decoder, max(1, min(workers, len(todo))))


def _run(
    backbone: Backbone, folder: Path, todo: list[Piece], options: _Options, decoders: Decoders
) -> Iterator[Outcome]:
    """Outcomes of the pieces as they come. One piece needs no workers; `folder` is where those read the backbone."""
    device = options.device
    workers = options.workers
    if options.engine == "ray":
        yield from run_ray(folder, todo, device=device, workers=workers, decoders=decoders, cluster=options.cluster)
        return
    if len(todo) == 1:
        name = "cuda:0" if device == "cuda" else "cpu"
        with one_thread(name):
            yield from work(BatchEncoder(backbone, device=name), todo, ["cuda" if options.decoder == "cuda" else "cpu"])
        return
    yield from run_local(backbone, folder, todo, device=device, workers=workers or cores(), decoders=decoders)


def _finished(out: Path, header: Header) -> FeatureStore | None:
    """The whole store at `out`, if there is one; it must be of the same backbone and preparation."""
    if not (out / FILE_NAME).is_file():
        return None
    store = FeatureStore.open(out)
    store.manifest.header.check_same(header, out)
    return store


def _unchanged(store: FeatureStore, sources: list[Source]) -> bool:
    stored = [(entry.name, entry.source, entry.size, entry.mtime_ns) for entry in store.manifest.entries]
    return not store.manifest.failed and stored == [(s.name, s.label, s.size, s.mtime_ns) for s in sources]


def _plan(sources: list[Source], every: int) -> tuple[dict[Source, list[Piece]], dict[str, str]]:
    """Every video's pieces; and those that cannot even be opened, with the reason."""
    from ballcast.video.file import VideoFile

    planned: dict[Source, list[Piece]] = {}
    failures: dict[str, str] = {}
    for source in sources:
        planned[source] = []
        try:
            frames = source.frames
            if frames is None:
                with VideoFile(source.path) as video:
                    frames = video.frame_count()
                    if frames is None:  # some streams do not state their length: count
                        frames = sum(1 for _ in video.frames())
            planned[source] = cut(source, frames, every)
            if not planned[source]:
                raise InputError(f"{source.path}: has {frames} frames at 25 fps, one window needs {WINDOW_FRAMES}")
        except BallcastError as error:
            failures[source.name] = str(error)
    return planned, failures


def _merge(
    given: Path,
    out: Path,
    header: Header,
    planned: dict[Source, list[Piece]],
    failures: dict[str, str],
    parts: Parts,
) -> FeatureStore:
    """The store of all pieces, in the order of the videos; then the pieces are not needed any more."""
    if len(failures) == len(planned):
        parts.remove()
    _require_some(given, planned, failures)
    writer = StoreWriter(out, header)
    for source, pieces in planned.items():
        if source.name in failures:
            writer.fail(source.name, failures[source.name])
            continue
        kept = [parts.read(piece) for piece in pieces]
        features = np.concatenate([features for features, _, _ in kept])
        if not len(features):
            writer.fail(source.name, f"{source.path}: ends before one window of {WINDOW_FRAMES} frames at 25 fps")
            continue
        writer.add(
            source.name,
            features,
            source=source.label,
            size=source.size,
            mtime_ns=source.mtime_ns,
            resolution=kept[0][1],
            padded=kept[-1][2],
        )
    _copy_labels(given, out)
    store = writer.finish()
    parts.remove()
    return store


def _require_some(given: Path, planned: dict[Source, list[Piece]], failures: dict[str, str]) -> None:
    if len(failures) == len(planned):
        first = next(iter(failures.values()))
        raise InputError(f"{given}: none of its {len(planned)} video(s) could be read; the first: {first}")


def _require_all_there(
    store: FeatureStore, given: Path, planned: dict[Source, list[Piece]], failures: dict[str, str]
) -> None:
    """Features are never thrown away because their video is missing: it may be another source, or deleted."""
    there = {source.name for source in planned} - failures.keys()
    if lost := [name for name in store.names if name not in there]:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise InputError(
            f"{store.path}: holds features of {lost[0]}{more}, whose video cannot be read at {given}; "
            "give another folder for another source, or remove this store"
        )


def _copy_labels(given: Path, out: Path) -> None:
    """The source's labels, if it has any, as they are now."""
    labels = given / LABELS
    copy = out / LABELS
    if labels.is_file() and not (copy.is_file() and copy.read_bytes() == labels.read_bytes()):
        with replacing(copy) as temporary:
            shutil.copyfile(labels, temporary)


def _warn_of_first(piece: Piece, decoder: str) -> None:
    """What to know of the first video before the work starts; one that cannot be opened is listed with the others."""
    from ballcast.video.file import open_video

    with suppress(BallcastError), open_video(piece.source.path, device="cuda" if decoder == "cuda" else "cpu") as video:
        if decoder == "cuda" and "CPU" in video.decoder:
            warnings.warn(f"--decoder cuda: {video.decoder}", BallcastWarning, stacklevel=2)
        seen = fitted(video.size, piece.picture_size)
        if seen[0] > ENLARGED * video.size[0]:
            warnings.warn(
                f"{piece.source.path}: its pictures of {show_size(video.size)} are enlarged to {show_size(seen)}; "
                "videos of that size give better features (SN-BAA's: `ballcast download --resolution 720p`)",
                BallcastWarning,
                stacklevel=2,
            )

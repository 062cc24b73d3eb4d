"""End to end beside frozen features: spotting and anticipation on simbaa's test matches and on ten more.

    python -m benchmarks.end_to_end train --data ../shared/data/simbaa DIR … --work DIR --group models --steps 2500
    python -m benchmarks.end_to_end frozen --data ../shared/data/simbaa DIR … --work DIR --backbone DIR
    python -m benchmarks.end_to_end embedded --data ../shared/data/simbaa DIR … --work DIR
    python -m benchmarks.end_to_end tuned --data ../shared/data/simbaa DIR … --work DIR
    python -m benchmarks.end_to_end speed --work DIR
    python -m benchmarks.end_to_end table --data ../shared/data/simbaa DIR … --work DIR

`train` trains the rows of a group of benchmarks/variants/end_to_end.yaml one after the other on frames that are
decoded once, and writes the outputs of each on all test matches to WORK/<row>.npz; rows that are there are not
repeated. `frozen` writes the same of the paper's model and FAANTRA on features of --backbone, one like the paper's;
`embedded` that of the embedded model. `tuned` fits that one as `ballcast tune` does on the validation matches, and
scores it. `table` scores all rows with 95 % intervals by match, over all ten classes and over those with at least 5
actions. Folders are of simulated matches (docs/backbone.md, "More matches of your own").
"""

import argparse
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml

from ballcast.core.actions import ACTIONS, FPS, FRAME_MS
from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import load
from ballcast.core.embedded import BACKBONE, MODEL
from ballcast.core.events import Clip, merge_arrays, merge_bins
from ballcast.core.files import write_bytes, write_json
from ballcast.data.labels.games import Game, count_actions, find_games
from ballcast.data.labels.label_sets import LabelSet
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.feature_cache import FeatureCache
from ballcast.data.samples.frames import FrameCache
from ballcast.data.samples.game_samples import evaluation_clips
from ballcast.data.samples.windows import WindowSet
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.store import FeatureStore
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.store_predictor import emission
from ballcast.inference.tuning import fit, match_bins
from ballcast.metrics.average_precision import Matches, match_all, match_arrays, score_of_matches
from ballcast.metrics.bootstrap import Intervals, bootstrap_matches, difference, interval
from ballcast.metrics.spotting import suppress_non_maxima
from ballcast.model.anticipator import Anticipator
from ballcast.model.end_to_end import EndToEnd, load_end_to_end
from ballcast.model.postprocess import (
    PEAKS,
    POSITIONS_MS,
    SlotArrays,
    SlotForm,
    SlotProbabilities,
    emit_flat,
    mean_intensity,
    select_times,
)
from ballcast.model.score_mapping import ScoreMapping
from ballcast.model.slots import Slots
from ballcast.training.data import EndToEndData, TrainingData
from ballcast.training.end_to_end import EndToEndTask
from ballcast.training.evaluation import (
    SPOTTING,
    game_scores,
    join_slots,
    middles_ms,
    predict_clips,
    predict_slots,
    spot,
)
from ballcast.training.loop import RunContext, train_one_epoch
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train
from ballcast.training.switches import use_triton
from ballcast.video.luma import array_shape
from benchmarks.game_windows import game_windows
from benchmarks.pixels import EVERY_MS, features_of
from benchmarks.resampled_spotting import resampled_spotting

VARIANTS = Path(__file__).parent / "variants/end_to_end.yaml"
GROUPS = {"models": "train", "parts": "train", "heads": "train", "frozen": "frozen"}  # of rows, with their job
EPOCHS = 10  # of a row: the schedule's warm-up is one of them


def games_of(folders: Sequence[Path]) -> dict[str, list[Game]]:
    """All games of the folders by split; test matches of the second and later folders are the split "test_more"."""
    found: dict[str, list[Game]] = {"train": [], "valid": [], "test": [], "test_more": []}
    for number, folder in enumerate(folders):
        for game in find_games(folder):
            split = "test_more" if game.split == "test" and number else game.split
            found[split].append(game)
    return found


def read_rows(group: str) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(VARIANTS.read_text())[group]


def recipe_of(row: dict[str, Any], overrides: Sequence[str], seconds: int, steps: int, work: Path) -> Recipe:
    """The recipe of a row, with so many steps in EPOCHS epochs on that many seconds of video."""
    given = row.get("overrides", [])
    changes = [word for part in given for word in (part if isinstance(part, list) else [part])]  # lists by alias
    for key, part in (("start", "best"), ("encoder", "best_backbone")):
        changes += [f"encoder.start={work / file_name(row[key]) / part}"] if key in row else []
    changes += ["encoder.learns=false", f"encoder.features={work / 'features'}"] if row.get("head") else []
    recipe = load(Recipe, Path(row["recipe"]), [*changes, *overrides])
    wanted = max(1, round(steps * row.get("share", 1.0) / EPOCHS)) * recipe.train.batch  # samples of an epoch
    every = max(1, seconds * FPS // wanted) * FRAME_MS
    train = replace(recipe.train, epochs=EPOCHS, warmup_epochs=1, restart_epochs=EPOCHS - 1)
    return replace(recipe, data=replace(recipe.data, every_ms=every), train=train)


def file_name(row: str) -> str:
    return row.replace(",", "").replace(" ", "-")


def train_rows(args: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    games = games_of(args.data)
    caches: dict[tuple[int, bool], FrameCache] = {}
    names = args.rows or list(read_rows(args.group))
    args.work.mkdir(parents=True, exist_ok=True)
    for name in names:
        row, target = read_rows(args.group)[name], args.work / f"{file_name(name)}.npz"
        if target.exists():
            continue
        lines = args.lines or row["lines"]
        colour = any("colour=true" in key for key in row.get("overrides", ()))
        if (lines, colour) not in caches:
            began = time.perf_counter()
            every = [game for split in games.values() for game in split]
            caches.clear()  # one size at a time
            caches[lines, colour] = FrameCache(every, device, "auto", lines=lines, colour=colour)
            frames = caches[lines, colour].total
            print(f"{frames} frames decoded in {time.perf_counter() - began:.0f} s", flush=True)
        cache = caches[lines, colour]
        chosen = games["train"][: row.get("matches")]
        others = label_set(games["train"][len(chosen) :]) if row.get("also") else ()
        used = cache.subset([*chosen, *(game for own in others for game in own.games)])
        recipe = recipe_of(row, args.overrides, int(used.length.sum()) // FPS, args.steps, args.work)
        tests = cache.subset([*games["test"], *games["test_more"]])
        # Epochs of a head are chosen on the validation matches; for frames that would take too long.
        valid = cache.subset(games["valid"]) if row.get("head") and games["valid"] else None
        run, began = args.work / file_name(name), time.perf_counter()
        progress = train(
            recipe,
            run,
            device=device,
            data=EndToEndData(used, valid, None, others),
            show=show_epoch,
        )
        seconds = time.perf_counter() - began
        about = {"row": name, "steps": progress.step, "seconds": seconds, "matches": len(chosen), "lines": lines}
        about |= {"epoch": progress.best_epoch, "valid": progress.best} if valid else {}
        if row.get("scored", True):
            mirrored = args.group != "parts" and not args.unmirrored
            write_outputs(load_end_to_end(run / "best"), tests, target, about, mirrored=mirrored)
        print(f"{name}: {json.dumps(about)}, {time.perf_counter() - began:.0f} s in all", flush=True)


def show_epoch(update: ProgressUpdate) -> None:
    if update.ended:
        score = f", valid {100 * update.score.avg:.2f}" if update.score else ""
        print(f"  {update.epoch + 1} {update.step}: {update.losses}, {update.samples_per_s:.0f}/s{score}", flush=True)


def label_set(games: Sequence[Game]) -> tuple[LabelSet, ...]:
    """The games as a label set of their own."""
    actions = tuple(np.array([(e.position_ms, e.action) for e in g.events], np.int64).reshape(-1, 2) for g in games)
    return (LabelSet("more", tuple(ACTIONS), tuple(replace(g, events=()) for g in games), actions),)


def embedded_row(args: argparse.Namespace) -> None:
    """The embedded model, as it is."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    games, target = games_of(args.data), args.work / "embedded.npz"
    if not target.exists():
        tests = FrameCache([*games["test"], *games["test_more"]], device, "auto", lines=args.lines or 224)
        learner = load_end_to_end(MODEL, BACKBONE)
        write_outputs(learner, tests, target, {"row": "embedded"}, mirrored=not args.unmirrored)


def tuned_rows(args: argparse.Namespace) -> None:
    """What `ballcast tune` gives the embedded model: fitted on the validation matches, scored on the test matches."""
    games, learner = games_of(args.data), load_end_to_end(MODEL, BACKBONE)
    sets = [title for title in ("valid", "test", "test_more") if games[title]]
    if not games["valid"]:
        raise SystemExit("tuned needs validation matches: give their folder with --data too")
    clips = {title: clips_of(games[title]) for title in sets}
    emit, weight = learner.anticipator.emit, learner.anticipator.pos_weight
    outputs: dict[str, list[SlotProbabilities]] = {title: [] for title in sets}
    for name, flip in (("embedded", False), ("embedded, mirrored", True)):
        slots = {title: official_slots(learner, games[title], flip=flip) for title in sets}
        for title in sets:
            outputs[title].append(SlotProbabilities.from_slots(slots[title]))
        emitted = {title: None if flip else emission(slots[title], emit) for title in sets}  # as `ballcast tune`
        untuned = ScoreMapping.untuned(weight)
        before = {t: e.kept if (e := emitted[t]) else untuned.scores(outputs[t]) for t in sets}
        fitted = fit(outputs["valid"], clips["valid"], before["valid"], pos_weight=weight, emission=emitted["valid"])
        outside = f"{100 * fitted.outside_before:.2f} → {100 * fitted.outside_after:.2f}"
        print(f"{name:19} valid     in folds it was not fitted on {outside}", flush=True)
        for title in sets[1:]:
            scores = before[title], fitted.mapping.scores(outputs[title], emitted[title])
            found = [match_bins(clips[title], own) for own in scores]
            groups = groups_of(games[title], clips[title])
            first, second = (bootstrap_matches(own, len(clips[title]), groups=groups) for own in found)
            means = [
                f"{100 * score_of_matches(own).avg:.2f} {np.round(100 * intervals.avg, 2)}"
                for own, intervals in zip(found, (first, second), strict=True)
            ]
            paired = np.round(100 * difference(first, second).avg, 2)
            print(f"{name:19} {title:9} untuned {means[0]}, tuned {means[1]}, difference {paired}", flush=True)


@torch.no_grad()
def official_slots(learner: EndToEnd, games: Sequence[Game], *, flip: bool) -> Slots:
    """Slots of the official clips of games, of mirrored frames with `flip`; each game is decoded on its own."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder, outputs = BatchEncoder(learner.backbone.to(device), device=device, compiled=False), []
    for game in games:
        cache = FrameCache([game], device, "memory")
        ends, _ = evaluation_clips(cache.games, cache.first, cache.length)
        features = encoder.start_windows(cache.read(0, cache.total), (ends - learner.span).tolist(), mirrored=flip)
        slots, _ = learner.to(device)(torch.from_numpy(features.array()).to(device).float())
        outputs.append(slots)
    return join_slots(outputs)


def write_outputs(learner: EndToEnd, tests: FrameCache, target: Path, about: dict[str, Any], *, mirrored: bool) -> None:
    """Write the model's slots of the official clips and its spotting scores along the matches; `mirrored`: also of
    mirrored frames."""
    learner = learner.to(tests.device)
    cache: FrameCache | FeatureCache = tests
    if not mirrored and learner.backbone.config.shift == "none":  # windows overlap; a stack is computed once
        cache = FeatureCache(tests, learner.backbone, target.parent / "features", every=1)
    arrays: dict[str, Any] = {}
    for view, flip in (("seen", False), ("mirrored", True))[: 1 + mirrored]:
        _, slots = predict_clips(learner, cache, flip=flip)
        for key in ("objectness", "classes", "offsets"):
            arrays[f"{view}_{key}"] = getattr(slots, key).half().cpu().numpy()
        arrays["counts"] = slots.form == "counts"
        if learner.anticipator.config.auxiliary:
            spotted = [game_scores(learner, cache, g, flip=flip) for g in range(len(tests.games))]
            arrays |= {f"{view}_spotting": np.stack([s for s, _ in spotted]).astype(np.float16), "times": spotted[0][1]}
    save_row(target, about, learner.anticipator.emit, arrays)


def frozen_rows(args: argparse.Namespace) -> None:
    """Anticipators on frozen features of the same matches; spotting by the backbone."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backbone = Backbone.load(str(args.backbone))
    stores = {folder: features_of(backbone, folder, args.work / folder.name, device.type) for folder in args.data}
    store = stores[args.data[0]]
    sizes = [f"model.clips={store.snippets}", f"model.width={store.width}"]
    spotting = spot_frozen(backbone, args.data, device)
    for name, row in read_rows(args.group).items():
        target = args.work / f"{args.group}-{file_name(name)}.npz"
        if target.exists() or (args.rows and name not in args.rows):
            continue
        recipe = load(Recipe, Path(row["recipe"]), [*sizes, *row.get("overrides", []), *args.overrides])
        windows = {split: frozen_windows(stores, split, recipe.model.windows) for split in EVERY_MS}
        run, began = target.with_suffix(""), time.perf_counter()
        made_by = store.manifest.header.backbone
        train(recipe, run, device=device, data=TrainingData(windows["train"], windows["valid"], made_by))
        model = Anticipator.from_pretrained(run / "best").to(device)
        about = {"row": f"{name}, {args.group}", "seconds": time.perf_counter() - began}
        slots = predict_slots(model, Samples(windows["test"], device, "auto"))
        arrays = {f"seen_{k}": getattr(slots, k).half().cpu().numpy() for k in ("objectness", "classes", "offsets")}
        save_row(target, about, recipe.emission, {**arrays, "counts": slots.form == "counts", **spotting})


def frozen_windows(stores: dict[Path, FeatureStore], split: str, windows: int) -> WindowSet:
    """Windows of the matches of a split, of all folders."""
    return WindowSet.join(
        [
            game_windows(store, {g.name: g.events for g in own}, windows, every_ms=EVERY_MS[split])
            for folder, store in stores.items()
            if (own := [g for g in find_games(folder) if g.split == split])
        ]
    )


def spot_frozen(backbone: Backbone, folders: Sequence[Path], device: torch.device) -> dict[str, Any]:
    """The backbone's own spotting scores along the test matches."""
    games = games_of(folders)
    cache = FrameCache([*games["test"], *games["test_more"]], device, "memory")
    engine = BatchEncoder(backbone.to(device), device=device, compiled=False)
    scores = []
    for first, length in zip(cache.first.tolist(), cache.length.tolist(), strict=True):
        read = partial(lambda begin, a, b: cache.read(begin + a, begin + b), first)
        scores.append(spot(engine, backbone.classifier.to(device), read, length).astype(np.float16))
    return {"seen_spotting": np.stack(scores), "times": middles_ms(backbone.config, int(cache.length[0]))}


def save_row(target: Path, about: dict[str, Any], emit: EmitConfig, arrays: dict[str, Any]) -> None:
    settings = {"mode": emit.mode, "threshold": emit.threshold, "reach_ms": emit.reach_ms, "inflation": emit.inflation}
    temporary = target.with_suffix(".part.npz")
    np.savez_compressed(temporary, about=json.dumps(about), emit=json.dumps(settings), **arrays)
    temporary.rename(target)


# ---------------------------------------------------------------------------------------------------------- scores


def anticipated(data: Any, chosen: slice, clips: Sequence[Any], *, mirrored: bool) -> Matches:
    """The matches of what a row emits for the clips; `mirrored`: scores averaged with those of mirrored frames."""
    emit = EmitConfig(**json.loads(str(data["emit"])))
    form: SlotForm = "counts" if data["counts"] else "bins"

    def slots(view: str) -> SlotArrays:
        objectness, classes, offsets = (
            data[f"{view}_{k}"][chosen].astype(np.float32) for k in ("objectness", "classes", "offsets")
        )
        return SlotArrays(objectness, classes, offsets, 32, form)

    if emit.mode != "expected" or not mirrored or "mirrored_objectness" not in data:
        return match_arrays(list(clips), *merge_arrays(*emit_flat(slots("seen"), emit)))
    views = [SlotProbabilities.from_slots(slots(view)) for view in ("seen", "mirrored")]
    found = select_times(mean_intensity(views, [emit.inflation] * 10), [emit.reach_ms] * 10, PEAKS)
    b, at = np.nonzero(found.any(-1))
    return match_arrays(list(clips), *merge_arrays(b, POSITIONS_MS[at], found[b, at]))


def spotted(data: Any, games: Sequence[Game], first: int, *, mirrored: bool) -> tuple[float, np.ndarray]:
    """Mean AP of a row on the games, and that of 1000 resamples of the games.

    A row of several windows has no scores in its first seconds; what happens then is left out.
    """
    peaks, begin = [], data["times"][0] - SPOTTING.tolerance_ms
    for g in range(len(games)):
        scores = data["seen_spotting"][first + g].astype(float)
        if mirrored and "mirrored_spotting" in data:
            scores = (scores + data["mirrored_spotting"][first + g]) / 2
        peaks.append(
            suppress_non_maxima(scores, data["times"], apart_ms=SPOTTING.apart_ms, smooth_ms=SPOTTING.smooth_ms)
        )
    seen = [[e for e in game.events if e.position_ms >= begin] for game in games]
    count, rng = len(games), np.random.default_rng(0)
    weights = np.vstack([np.ones(count, int), rng.multinomial(count, [1 / count] * count, 1000)])
    options = {"tolerance_ms": SPOTTING.tolerance_ms, "least": SPOTTING.least}
    means = resampled_spotting(list(zip(seen, peaks, strict=True)), weights, **options)
    return float(means[0]), means[1:]


def clips_of(games: Sequence[Game]) -> list[Clip]:
    """The official clips of simulated matches, 5 minutes each."""
    length = np.full(len(games), 7500)
    return evaluation_clips(games, 0 * length, length)[1]


def groups_of(games: Sequence[Game], clips: Sequence[Clip]) -> list[str] | None:
    """The match of each clip, to resample matches; None, to resample clips: there are too few matches."""
    return [clip.name.rpartition("+")[0] for clip in clips] if len(games) >= 10 else None


def scored_rows(work: Path, games: dict[str, list[Game]], title: str) -> Iterator[tuple[str, bool, Matches, Any]]:
    """Yield the name of a row, whether mirrored frames count too, its matches on a test set and its spotting scores:
    the baselines that need no video, then every row of `work`."""
    chosen, known = games[title], clips_of(games["train"])
    first, clips = (0 if title == "test" else len(games["test"])), clips_of(games[title])
    for kind in (ClassPrior, Markov):
        baseline = kind(known)
        predictions = {clip.name: merge_bins(baseline.predict(clip)) for clip in clips}
        yield kind.__name__, False, match_all(clips, predictions), {}
    per_game = len(clips) // len(chosen)
    part = slice(first * per_game, (first + len(chosen)) * per_game)
    for path in sorted(work.glob("*.npz")):
        data = np.load(path)
        row = json.loads(str(data["about"]))["row"]
        for mirrored in (False, True)[: 1 + ("mirrored_objectness" in data)]:
            spotting = {}
            if "seen_spotting" in data:
                ap, draws = spotted(data, chosen, first, mirrored=mirrored)
                spotting = {"AP": ap, "AP interval": interval(draws).tolist(), "draws": draws}
            yield row, mirrored, anticipated(data, part, clips, mirrored=mirrored), spotting


def mean_interval(intervals: Intervals, classes: np.ndarray) -> list[float]:
    """The 95 % interval of the mean over some classes (10,) bool; one with a few actions moves the mean by points."""
    return interval(intervals.resampled[:, :, classes].mean((1, 2))).tolist()


def table(args: argparse.Namespace) -> None:
    games, results = games_of(args.data), {}
    sets = [title for title in ("test", "test_more") if games[title]]
    often = {title: np.array([*count_actions(games[title]).values()]) >= SPOTTING.least for title in sets}
    for title in sets:
        clips = clips_of(games[title])
        groups = groups_of(games[title], clips)
        for row, mirrored, matches, spotting in scored_rows(args.work, games, title):
            intervals = bootstrap_matches(matches, len(clips), groups=groups)
            draws = spotting.pop("draws", None)  # of AP, the same resamples of games for every row
            line = {"mAP": score_of_matches(matches).avg, "interval": intervals.avg.tolist(), **spotting}
            line |= {f"mAP of {often[title].sum()}": intervals.ap[:, often[title]].mean()}
            line |= {"its interval": mean_interval(intervals, often[title])}
            results[row, title, mirrored] = (line, intervals, draws)
            shown = ", ".join(f"{k} {np.round(100 * np.array(v), 2)}" for k, v in line.items())
            print(f"{row:16} {title:9} {'mirrored' if mirrored else '':9} {shown}", flush=True)
    if args.against not in {row for row, _, _ in results}:
        print(f"no row {args.against!r} to compare with")
    for title in sets:
        for (row, other, mirrored), (_, intervals, draws) in results.items():
            base = results.get((args.against, title, False))
            if other == title and base and (row, mirrored) != (args.against, False):
                paired = difference(base[1], intervals)
                low, high = 100 * paired.avg
                least, most = 100 * np.array(mean_interval(paired, often[title]))
                means = f"of {often[title].sum()} classes between {least:.2f} and {most:.2f}"
                if draws is not None and base[2] is not None:
                    least, most = 100 * interval(draws - base[2])
                    means += f"; AP between {least:.2f} and {most:.2f}"
                name = f"{row}{', mirrored' * mirrored}"
                print(f"{name} − {args.against}, {title}: between {low:.2f} and {high:.2f}; {means}")
    if args.json:
        write_json(args.json, {" | ".join(map(str, k)): v[0] for k, v in results.items()}, indent=1)


# ----------------------------------------------------------------------------------------------------------- speed


def speed(args: argparse.Namespace) -> None:
    """Stacks a second of a training step from the cache: by our Triton layers, eager, compiled; by batch and size."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = []
    for lines, width, batch, how, recompute in args.settings:
        about = {"lines": lines, "width": width, "batch": batch, "how": how, "recompute": recompute}
        changes = [f"train.batch={batch}", f"train.compile={how == 'compiled'}", f"encoder.recompute={recompute}"]
        recipe = load(Recipe, Path("e2e"), [*changes, *args.overrides])
        kernels = args.work / f"kernels_{lines}x{width}_{batch}_{how}{'_recompute' * recompute}.txt"
        with patch("ballcast.training.end_to_end.use_triton", use_triton if how == "triton" else lambda network: None):
            try:
                row = measure_step(recipe, lines, width, device, args.steps, kernels if args.kernels else None)
            except torch.OutOfMemoryError as error:
                row = {"error": str(error).splitlines()[0]}
        rows.append({**about, **row})
        print(json.dumps(rows[-1]), flush=True)
        write_bytes(args.work / "speed.json", json.dumps(rows, indent=1).encode())
        torch.compiler.reset()
        torch.cuda.empty_cache() if device.type == "cuda" else None


def measure_step(
    recipe: Recipe, lines: int, width: int, device: torch.device, steps: int, kernels: Path | None = None
) -> dict[str, Any]:
    """A step on frames of noise that lie on the device as a cache's would; `kernels`: where to list what takes long."""
    # Few frames where they are large, so that they take little of the memory that is measured.
    cache = NoiseCache(4, 2000 if lines < 400 else 1000, (lines, width), device, colour=recipe.encoder.network.colour)
    task = EndToEndTask(recipe, RunContext(Path("unused"), device), EndToEndData(cache, None), log=print)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    epoch, watched, warm = 0, None, min(10, steps // 2)
    while len(times) < steps + 1:
        for _ in train_one_epoch(task, epoch):
            if on_gpu and len(times) in (0, warm, steps):  # the host runs ahead of the GPU
                torch.cuda.synchronize()
            times.append(time.perf_counter())
            if len(times) == 11:
                watched = GpuWatch()
            if len(times) > steps:
                break
        epoch += 1
    if on_gpu:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - times[warm]) / (len(times) - 1 - warm)
    busy = watched.stop() if watched is not None else None
    if kernels is not None:
        with torch.profiler.profile() as profile:
            next(train_one_epoch(task, epoch))
        kernels.write_text(profile.key_averages().table(sort_by=f"self_{device.type}_time_total", row_limit=40))
    stacks = recipe.train.batch * task.learner.stacks * task.learner.windows
    memory = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else 0.0
    return {
        "ms": 1000 * seconds,
        "stacks_per_s": stacks / seconds,
        "gib": memory,
        "first_s": times[warm] - times[0],
        "gpu_busy": busy,
    }


class GpuWatch:
    """Reads the share of time that the GPU is busy, from nvidia-smi, a few times a second; `stop` gives the median."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stopped.wait(0.2):
            try:
                self.seen.append(float(subprocess.run(query, capture_output=True, text=True).stdout.split()[0]))
            except (OSError, ValueError, IndexError):
                return

    def stop(self) -> float | None:
        self._stopped.set()
        self._thread.join()
        return float(np.median(self.seen)) if self.seen else None


class NoiseCache(FrameCache):
    """Games of random frames on the device."""

    def __init__(
        self, games: int, frames: int, size: tuple[int, int], device: torch.device, *, colour: bool = False
    ) -> None:
        self.games = [Game(f"noise_{g}", "train", (), ()) for g in range(games)]
        self.device, self.size, self.where = device, size, "gpu" if device.type == "cuda" else "memory"
        self.colour, self.workers = colour, 1
        self.length = np.full(games, frames)
        self.first, self.total = frames * np.arange(games), games * frames
        shape = (self.total, *array_shape(size, colour=colour))
        self._bank = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


SETTINGS = [  # lines, width, batch, how, activations computed again
    (224, 384, 16, "triton", False),
    (224, 384, 16, "eager", False),
    (224, 384, 16, "compiled", False),
    (224, 398, 12, "triton", False),
    (224, 398, 6, "triton", False),  # fits 24 GB
    (224, 398, 8, "triton", True),  # fits 12 GB
    (112, 198, 16, "triton", False),
    (448, 796, 4, "triton", True),
    (720, 1280, 1, "triton", True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=tuple(JOBS))
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--data", type=Path, nargs="+", default=[Path(__file__).parents[2] / "shared/data/simbaa"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--group", choices=GROUPS, help="of rows; default: models, for the job frozen frozen")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    parser.add_argument("--steps", type=int, default=2000, help="of a row with share 1; of a measurement")
    parser.add_argument("--lines", type=int, default=0, help="instead of the rows' own")
    parser.add_argument("--unmirrored", action="store_true", help="no outputs of mirrored frames: half the time")
    parser.add_argument("--kernels", action="store_true", help="speed: list the kernels that take longest, too")
    parser.add_argument("--how", nargs="+", help="speed: of triton, eager, compiled only these")
    parser.add_argument("--against", default="paper, frozen", help="the row that others are compared with")
    parser.add_argument("--backbone", type=Path, help="frozen: of the features, such as one of `ballcast pretrain`")
    parser.add_argument("--json", type=Path)
    args = parser.parse_intermixed_args()
    if args.job == "frozen" and args.backbone is None:
        parser.error("frozen needs --backbone")
    args.group = args.group or ("frozen" if args.job == "frozen" else "models")
    if args.job in ("train", "frozen"):
        if GROUPS[args.group] != args.job:
            parser.error(f"the rows of {args.group} are for the job {GROUPS[args.group]}")
        if unknown := set(args.rows or ()) - set(read_rows(args.group)):
            parser.error(f"{args.group} has no row {min(unknown)!r}; it has {', '.join(read_rows(args.group))}")
    args.settings = [s for s in SETTINGS if args.lines in (0, s[0]) and (not args.how or s[3] in args.how)]
    if args.job == "speed" and not args.settings:
        parser.error("speed has no such --lines and --how")
    args.work.mkdir(parents=True, exist_ok=True)
    JOBS[args.job](args)


JOBS = {
    "train": train_rows,
    "frozen": frozen_rows,
    "embedded": embedded_row,
    "tuned": tuned_rows,
    "table": table,
    "speed": speed,
}


if __name__ == "__main__":
    main()

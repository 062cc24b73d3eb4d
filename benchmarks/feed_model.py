"""The event transformer on real football: train it, score it on validation and England, average several, distil them.

    python -m benchmarks.feed_model train OUT --size full --seed 0 [key=value …] [--teachers OUT0,OUT1]
    python -m benchmarks.feed_model score OUT --size full              # validation and England, with intervals
    python -m benchmarks.feed_model ensemble OUT OUT0 OUT1 … --size full

Keys are those of `EventTransformerConfig` and `FeedTrainConfig`. OUT is a folder: `config.json`, `model.safetensors`
(the moving average of the weights), `log.json`, `rows.json`, and the outputs for each split as `valid.npz` and
`test.npz`. Choices are made by validation; England is only scored.

Data: Wyscout (Pappalardo, Massucco et al., figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from ballcast.core.actions import ACTIONS, OBSERVED_MS
from ballcast.core.event_schema import DETAILS, HORIZONS_S
from ballcast.core.events import Clip
from ballcast.core.files import read_json, write_json
from ballcast.data.events.event_grid import (
    EVERY_MS,
    Size,
    compute_targets,
    make_clips,
    split_matches,
    window_ends,
    window_names,
)
from ballcast.data.events.event_tokens import PERIOD_MS, EventTable, build_table, hide, tokens_before
from ballcast.data.events.feed import PERIODS, Feed
from ballcast.data.events.wyscout import read_table
from ballcast.inference.tuning import match_bins, score_bins
from ballcast.model.event_transformer import EventTransformer, EventTransformerConfig, decode_slots
from ballcast.model.postprocess import PEAKS, select_times
from ballcast.model.score_mapping import REACH_MS
from ballcast.training.feed_training import FeedDataset, FeedTrainConfig, FeedTrainer, state
from benchmarks.events import TABLE
from benchmarks.rows import row_of

REPORTS = (0.25, 0.5, 0.75, 0.9)  # shares of a training after which it is scored on some windows of validation
SOME = 12_000


@dataclass(frozen=True)
class Scored:
    """The windows of a split: tables of their events, times T on the table's clock, names and labels."""

    table: EventTable
    at: np.ndarray[Any, np.dtype[np.int64]]
    names: list[str]
    clips: list[Clip]

    @classmethod
    def of(cls, feeds: Sequence[Feed], every_ms: int) -> "Scored":
        periods = [(feed.match, name, half) for feed in feeds for name, half in feed.periods()]
        at, names, clips = [], [], []
        for number, (match, name, half) in enumerate(periods):
            ends = window_ends(half, every_ms)
            labels = compute_targets(half, ends)
            own = window_names(match, np.full(len(ends), PERIODS.index(name)), ends)
            at.append(number * PERIOD_MS + ends)
            names += own
            clips += make_clips(own, labels.classes, labels.position_ms)
        return cls(build_table([half for _, _, half in periods]), np.concatenate(at), names, clips)

    def some(self, count: int) -> "Scored":
        """At most `count` windows, evenly taken."""
        chosen = np.arange(0, len(self.at), -(-len(self.at) // count))
        return Scored(self.table, self.at[chosen], [self.names[i] for i in chosen], [self.clips[i] for i in chosen])


@torch.inference_mode()
def outputs_of(
    model: EventTransformer, split: Scored, device: torch.device, *, missing: Sequence[str] = (), batch: int = 4096
) -> dict[str, Any]:
    """Intensity (C, n, 32) float32 and chance (n, C, 5) float16 of either team; `missing`: `DETAILS` to hide."""
    config = model.config
    table = EventTable(**{name: torch.from_numpy(column).to(device) for name, column in vars(split.table).items()})
    model = model.eval()
    intensity, chance = [], []
    for begin in range(0, len(split.at), batch):
        at = torch.from_numpy(split.at[begin : begin + batch]).to(device)
        codes, values = tokens_before(torch, table, at, tokens=config.tokens, observed_ms=config.observed_ms)
        available = torch.ones(len(at), len(DETAILS), dtype=torch.bool, device=device)
        if missing:
            available[:, [DETAILS.index(name) for name in missing]] = False
            codes, values = hide(torch, codes, values, available)
        counts, within, _ = decode_slots(model(codes, values, available.float()))
        intensity.append(counts.sum(1).cpu().numpy())
        chance.append(within[:, 2].half().cpu().numpy())
    return {
        "intensity": np.ascontiguousarray(np.concatenate(intensity).transpose(1, 0, 2)),
        "chance": np.concatenate(chance),
    }


def came_within(windows: Scored) -> Any:
    """(n, C, 5) bool: whether each action came within 1, 2, … 5 s of each window's end."""
    came = np.zeros((len(windows.clips), len(ACTIONS), len(HORIZONS_S)), bool)
    for i, clip in enumerate(windows.clips):
        for event in clip.anticipation:
            came[i, event.action] |= event.position_ms - OBSERVED_MS < 1000 * np.array(HORIZONS_S)
    return came


def read_scores(intensity: Any, reach_ms: int = REACH_MS, power: float = 1.0) -> Any:
    """(n, 32, C) scores; `power` below 1 spreads low scores over more of the scorer's 200 thresholds."""
    scores = select_times(intensity, [reach_ms] * len(intensity), PEAKS)
    return scores**power if power != 1 else scores


def open_splits(table: Path, size: Size, names: Sequence[str], matches: int | None) -> dict[str, list[Feed]]:
    feeds = split_matches(read_table(table), size)
    return {name: feeds[name][:matches] for name in names}


def train(args: argparse.Namespace, device: torch.device) -> None:
    config, how = read_settings(args.overrides, args.seed)
    feeds = open_splits(args.data, args.size, ("train", "valid"), args.matches)
    valid = Scored.of(feeds["valid"], EVERY_MS["valid"]).some(args.some)
    teachers = [load_model(Path(folder), device) for folder in args.teachers.split(",") if folder]
    trainer = FeedTrainer(FeedDataset.from_feeds(feeds["train"], device), config, how, teachers=teachers)
    if args.start is not None:
        trainer.start(load_file(args.start / "model.safetensors"))
    began, log = time.perf_counter(), []

    def report(share: float, step: int) -> None:
        scores = read_scores(outputs_of(trainer.average, valid, device)["intensity"])
        entry = {
            "share": share,
            "step": step,
            "loss": float(trainer.loss),
            "valid": score_bins(valid.clips, scores).avg,
        }
        log.append(entry | {"seconds": time.perf_counter() - began})
        print(args.out.name, json.dumps(log[-1]), flush=True)

    steps = trainer.run(report, REPORTS)
    report(1.0, steps)
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(dict(state(trainer.average)), args.out / "model.safetensors")
    about = {"size": args.size, "teachers": args.teachers, "start": str(args.start), "windows": steps * how.batch}
    write_json(args.out / "log.json", {**about, "how": asdict(how), "log": log}, indent=1)
    write_json(args.out / "config.json", asdict(config), indent=1)


def read_settings(overrides: Sequence[str], seed: int) -> tuple[EventTransformerConfig, FeedTrainConfig]:
    """The defaults with key=value changes."""
    config, how = EventTransformerConfig(), FeedTrainConfig(seed=seed)
    for entry in overrides:
        key, _, text = entry.partition("=")
        for settings in (config, how):
            kinds = {field.name: type(getattr(settings, field.name)) for field in fields(settings)}
            if key in kinds:
                settings = replace(settings, **{key: kinds[key](float(text))})
                config, how = (settings, how) if isinstance(settings, EventTransformerConfig) else (config, settings)
                break
        else:
            raise SystemExit(f"no such key: {key}")
    return config, how


def load_model(folder: Path, device: torch.device) -> EventTransformer:
    model = EventTransformer(EventTransformerConfig(**read_json(folder / "config.json", "sizes of the model")))
    model.load_state_dict({name: t.float() for name, t in load_file(folder / "model.safetensors").items()})
    return model.to(device).eval()


def score(args: argparse.Namespace, device: torch.device) -> None:
    """Write the rows of a model, or of the mean of several: validation decides how scores are read, then England."""
    members = [Path(folder) for folder in args.members] or [args.out]
    feeds = open_splits(args.data, args.size, ("valid", "test"), args.matches)
    rows: dict[str, Any] = {"members": [str(m) for m in members]}
    power = 1.0
    for split, own in feeds.items():
        windows = Scored.of(own, EVERY_MS[split])
        parts = [_outputs(folder, split, windows, device, args) for folder in members]
        mean = {key: sum(np.asarray(part[key], np.float32) for part in parts) / len(parts) for key in parts[0]}
        if split == "valid":
            tried = {p: score_bins(windows.clips, read_scores(mean["intensity"], power=p)).avg for p in (1.0, 0.5)}
            power = max(tried, key=tried.__getitem__)
            rows["power"], rows["tried"] = power, tried
        for p in sorted({1.0, power}):
            scores = read_scores(mean["intensity"], power=p)
            row = row_of(match_bins(windows.clips, scores), windows.names, float(scores.any(-1).sum(1).mean()))
            rows[split if p == 1 else f"{split}, power {p:g}"] = row
        for name in filter(None, args.missing.split(";")):
            hidden = outputs_of(load_model(members[0], device), windows, device, missing=name.split(","))
            rows.setdefault("hidden", {}).setdefault(split, {})[name] = score_bins(
                windows.clips, read_scores(hidden["intensity"])
            ).avg
        shown = {key: round(100 * rows[key]["avg"], 2) for key in rows if key.startswith(split)}
        print(args.out.name, len(members), "models", len(windows.names), split, shown, flush=True)
        args.out.mkdir(parents=True, exist_ok=True)
        chance = np.asarray(mean["chance"], np.float16)
        np.savez(args.out / f"{split}-chance.npz", chance=chance, came=came_within(windows))
        write_json(args.out / "rows.json", rows, indent=1)


def _outputs(
    folder: Path, split: str, windows: Scored, device: torch.device, args: argparse.Namespace
) -> dict[str, Any]:
    """A model's outputs for a split, kept beside it."""
    path = folder / f"{args.size}-{split}-{args.matches or 'all'}.npz"
    if not path.exists():
        found = outputs_of(load_model(folder, device), windows, device)
        np.savez(path, intensity=found["intensity"].astype(np.float16), chance=found["chance"])
    with np.load(path) as file:
        return {"intensity": file["intensity"], "chance": file["chance"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "score", "ensemble"))
    parser.add_argument("out", type=Path)
    parser.add_argument("rest", nargs="*", help="key=value, or for an ensemble the folders of its models")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teachers", default="", help="folders of models to distil, separated by commas")
    parser.add_argument("--start", type=Path, help="train: the folder of a model to go on from")
    parser.add_argument("--missing", default="", help="score: also with these flags hidden; sets separated by ;")
    parser.add_argument("--data", type=Path, default=TABLE, help="wyscout_leagues.parquet")
    parser.add_argument("--matches", type=int, help="only so many matches a split, to see that it works")
    parser.add_argument("--some", type=int, default=SOME, help="windows of validation to score while training")
    args = parser.parse_intermixed_args()
    args.overrides = [entry for entry in args.rest if "=" in entry]
    args.members = [entry for entry in args.rest if "=" not in entry]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.enable_cudnn_sdp(False)  # not tried in CUDA graphs
    train(args, device) if args.what == "train" else score(args, device)


if __name__ == "__main__":
    main()

"""What the quality benchmarks share: rows and their recipes, a training and its scores, results kept on disk.

Scores have 95 % intervals: matches are resampled where there are enough of them, else clips.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.backbone_config import BackboneIdentity
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.core.events import Prediction, merge_arrays, merge_bins
from ballcast.core.files import read_json, write_json
from ballcast.data.events.feed import PERIODS
from ballcast.data.samples.batches import Samples
from ballcast.data.samples.windows import WindowSet
from ballcast.metrics.average_precision import TOLERANCES, Matches, match_all, match_arrays, score_of_matches
from ballcast.metrics.bootstrap import bootstrap_matches
from ballcast.model.anticipator import Anticipator
from ballcast.model.postprocess import emit_flat
from ballcast.model.slots import Slots
from ballcast.training.ablation import read_variants
from ballcast.training.data import TrainingData
from ballcast.training.evaluation import predict_slots
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import train

Result = dict[str, Any]  # {"valid": row, "test": row, …}, a row: at1 … atInfty, avg, interval, predictions
HEADER = f"{' | '.join(TOLERANCES)} | mean | 95 % interval | predictions |\n|{'---|' * 11}"
LEAST_MATCHES = 10  # fewer matches give no interval worth printing: their clips are resampled


def read_recipes(
    config: str, overrides: Sequence[str], variants: Path | None, name: str
) -> dict[str, tuple[Recipe, EmitConfig]]:
    """By row: its recipe, and the emission that its epochs are chosen by.

    `variants` is a YAML file, name → list of key=value; an entry without a "=" names another recipe than `config` to
    start from. Without a file there is one row, `name`. Rows that start from the same recipe choose epochs alike.
    """
    rows = {}
    for row, extra in (read_variants(variants) if variants else {name: []}).items():
        start = Path(next((entry for entry in extra if "=" not in entry), config))
        own = [entry for entry in extra if "=" in entry]
        rows[row] = load(Recipe, start, [*overrides, *own]), load(Recipe, start, overrides).emit
    return rows


class Results:
    """Rows in order, each {"name", "runs", …}, written to a file after every run, and found there by a later call."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Result] = []
        if path is not None and path.exists():
            self.rows = read_json(path, "earlier results")
            if not isinstance(self.rows, list):
                raise InputError(f"{path}: is not a list of rows; give another --json")

    def done(self, name: str, about: Mapping[str, Any]) -> list[Result]:
        """The runs of a row that are there already, if all in `about` (its recipe, for example) is the same."""
        for row in self.rows:
            if row["name"] == name and all(row.get(key) == value for key, value in about.items()):
                return list(row["runs"])
        return []

    def put(self, name: str, about: Mapping[str, Any], runs: Sequence[Result]) -> None:
        row = {"name": name, **about, "runs": list(runs)}
        names = [other["name"] for other in self.rows]
        if name in names:
            self.rows[names.index(name)] = row
        else:
            self.rows.append(row)
        if self.path is not None:
            write_json(self.path, self.rows, indent=1)

    def show(self, names: Sequence[str]) -> None:
        """Print these rows as a table."""
        print(f"| | | {HEADER}")
        for split in ("valid", "test"):
            for row in self.rows:
                if row["name"] in names:
                    print(table_row(row["name"], row["runs"], split))


def seeds_of(base: Recipe, count: int) -> list[Recipe]:
    """The recipe with `count` seeds, from its own on."""
    return [replace(base, train=replace(base.train, seed=base.train.seed + seed)) for seed in range(count)]


def match_of(name: str) -> str:
    """The match of a window by its name, "match_003+35000" or "2499719-1H+37000"; "" without one."""
    return re.sub(rf"-({'|'.join(PERIODS)})$", "", name.rpartition("+")[0])


def row_of(matches: Matches, names: Sequence[str], predictions: float) -> Result:
    """A row: mAP at each tolerance, their mean and its interval, each class's mean, and the predictions a window.

    names: of the windows; they contain their matches.
    """
    result = score_of_matches(matches)
    games = [match_of(name) for name in names]
    by_match = all(games) and len(set(games)) >= LEAST_MATCHES
    found = bootstrap_matches(matches, len(names), groups=games if by_match else None)
    return {
        **result.at,
        "avg": result.avg,
        "interval": found.avg.tolist(),
        "resampled": f"{found.groups} {'matches' if by_match else 'clips'}",
        "predictions": predictions,
        "per_class": result.ap.mean(0).tolist(),
    }


def scored(windows: WindowSet, predictions: Sequence[Sequence[Prediction]]) -> Result:
    """The row of one list of predictions a window, in their order."""
    merged = dict(zip(windows.names, map(merge_bins, predictions), strict=True))
    return row_of(match_all(windows.clips, merged), windows.names, sum(map(len, predictions)) / len(predictions))


def emitted(slots: Slots, windows: WindowSet, emit: EmitConfig) -> Result:
    """Score what is emitted of a model's outputs for all windows, as a row."""
    clip, position_ms, vectors = emit_flat(slots, emit)
    matches = match_arrays(windows.clips, *merge_arrays(clip, position_ms, vectors))
    return row_of(matches, windows.names, len(clip) / len(slots.objectness))


def trained(
    recipe: Recipe,
    windows: Mapping[str, WindowSet],
    made_by: BackboneIdentity,
    folder: Path,
    device: torch.device,
    *,
    chosen_by: EmitConfig | None = None,
    slots_to: Path | None = None,
) -> Result:
    """One training on "train" into `folder`, chosen by "valid", and its best epoch's rows there and on "test".

    `chosen_by`: the emission that epochs are compared by, the same for variants that share a training.

    Its output slots are written to `slots_to`.
    """
    began = time.perf_counter()

    def show(update: ProgressUpdate) -> None:
        if update.score is not None and update.step == update.steps:
            took = time.perf_counter() - began
            loss = update.losses["total"]
            print(
                f"  epoch {update.epoch + 1}: loss {loss:.4f}, valid {100 * update.score.avg:.2f}, {took:.0f} s",
                flush=True,
            )

    data = TrainingData(windows["train"], windows["valid"], made_by)
    progress = train(replace(recipe, emit=chosen_by or recipe.emit), folder, device=device, show=show, data=data)
    seconds = time.perf_counter() - began
    model = Anticipator.from_pretrained(folder / "best").to(device)
    rows = {}
    for name in ("valid", "test"):
        samples = Samples(windows[name], device, recipe.data.device)
        slots = predict_slots(model, samples)
        rows[name] = emitted(slots, windows[name], recipe.emission)
        if slots_to is not None:
            slots_to.mkdir(parents=True, exist_ok=True)
            arrays = {key: getattr(slots, key).half().cpu().numpy() for key in ("objectness", "classes", "offsets")}
            np.savez_compressed(slots_to / f"{folder.name}-{name}.npz", **arrays)
    scores = {split: round(100 * row["avg"], 2) for split, row in rows.items()}
    print(f"seed {recipe.train.seed}: {scores}, epoch {progress.best_epoch}, {seconds:.0f} s, {folder}", flush=True)
    return {**rows, "seconds": seconds, "epoch": progress.best_epoch, "seed": recipe.train.seed, "run": folder.name}


def table_row(name: str, results: list[Result], split: str) -> str:
    """mAP in per cent at each tolerance; their mean, its deviation over the seeds, its interval; predictions a window.

    The interval is of a single run, from resampling; its ends are averaged over the seeds.
    """
    values = np.array([[100 * r[split][key] for key in (*TOLERANCES, "avg")] for r in results])
    mean, spread = values.mean(0), values.std(0, ddof=1)[-1] if len(results) > 1 else 0.0
    emitted = np.mean([r[split]["predictions"] for r in results])
    low, high = 100 * np.mean([r[split]["interval"] for r in results], 0)
    cells = " | ".join(f"{v:.1f}" for v in mean[:-1])
    interval = f"{low:.2f} – {high:.2f} ({results[0][split]['resampled']})"
    return f"| {name} | {split} | {cells} | {mean[-1]:.2f} ± {spread:.2f} | {interval} | {emitted:.1f} |"

"""Variants of a recipe, trained with several seeds and put into one table."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.markup import escape
from rich.table import Table

from ballcast.core.anticipator_config import EmitConfig, Recipe
from ballcast.core.config import load, read_yaml, to_yaml
from ballcast.core.errors import InputError
from ballcast.data.samples.batches import Samples
from ballcast.metrics.average_precision import TOLERANCES
from ballcast.model.anticipator import Anticipator
from ballcast.report.terminal import HEADINGS
from ballcast.training.data import fit_to_store, open_splits, scored_windows
from ballcast.training.evaluation import predict, score_of
from ballcast.training.run import train

# The paper's ablations and more.
VARIANTS: dict[str, list[str]] = {
    "paper": [],
    "static queries": ["model.hierarchy.queries=static"],
    "τ 0.05, slot": ["emit.threshold=0.05"],
    "τ 0.3, class": ["emit.mode=class"],
    "τ 0.05, class": ["emit.mode=class", "emit.threshold=0.05"],
    "emitted label only": ["emit.vector=emitted"],
    # What the paper's ablation of τ must have been: several classes per slot, each with only its label's score.
    "τ 0.3, class, emitted label only": ["emit.mode=class", "emit.vector=emitted"],
    "τ 0.05, class, emitted label only": ["emit.mode=class", "emit.vector=emitted", "emit.threshold=0.05"],
    "joint C + 1 softmax": ["model.hierarchy.heads=joint", "loss.pos_weight=1", "loss.label_smoothing=0"],
    "no reweighted matching": ["loss.reweight=false"],
    "no boosted sampler": ["data.boost={}"],
    "no MixUp": ["data.mixup=0"],
    "loss over the batch": ["loss.average=batch"],
    "no auxiliary head": ["model.auxiliary=false"],
    "auxiliary by cells": ["loss.auxiliary_norm=cells"],
    "auxiliary by positives": ["loss.auxiliary_norm=positives"],
    "one-hot offsets": ["loss.sigma=0"],
}


@dataclass(frozen=True)
class Row:
    """A variant's scores, a row a seed: mAP at each tolerance and their mean; and predictions emitted a clip."""

    name: str
    scores: np.ndarray  # (seeds, 7) fractions
    per_clip: float

    def as_dict(self) -> dict[str, Any]:
        names = (*TOLERANCES, "avg")
        mean = self.scores.mean(0)
        deviation = self.scores.std(0, ddof=1 if len(self.scores) > 1 else 0)
        return {
            "mean": dict(zip(names, mean.tolist(), strict=True)),
            "deviation": dict(zip(names, deviation.tolist(), strict=True)),
            "seeds": len(self.scores),
            "predictions_per_clip": self.per_clip,
        }


def read_variants(path: Path | None) -> dict[str, list[str]]:
    """The variants of a YAML file, `name: [key=value, …]`; without one, ours."""
    if path is None:
        return VARIANTS
    variants = read_yaml(path)
    for name, overrides in variants.items():
        if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
            raise InputError(f"{path}: '{name}' must be a list of key=value texts, [] for none")
    return {str(name): overrides for name, overrides in variants.items()}


def ablate(
    config: Path,
    overrides: list[str],
    variants: Mapping[str, list[str]],
    seeds: int,
    folder: Path,
    device: torch.device,
    log: Callable[[str], None],
    splits: Sequence[str] = (),
) -> list[Row]:
    """Train what is not trained yet and score every variant on `splits`, without them on the validation splits.

    Epochs are chosen on the validation splits, by the emission of the recipe that the variants start from. Trainings
    are found by what they depend on: variants that differ only in emission share one, which has the name of the first.

    Args:
        config: the recipe that the variants start from.
        overrides: key=value for all variants.
        variants: key=value of each variant by its name.
        seeds: trainings of a variant.
        folder: of all runs; finished ones are not repeated.
        device: where to compute.
        log: called with a line for each score.
        splits: to score on.

    Returns:
        A row for each variant.
    """
    if not variants:
        raise InputError("there are no variants to run")
    recipes = {
        name: fit_to_store(load(Recipe, config, [*overrides, *extra]), [*overrides, *extra])
        for name, extra in variants.items()
    }
    chosen_by = load(Recipe, config, overrides).emit
    rows = []
    for name, base in recipes.items():
        if not base.data.valid:
            raise InputError("epochs are chosen on validation splits; name one with data.valid=[valid]")
        scores = []
        emitted = 0.0
        scored_on = scored_windows(open_splits(base.data, splits or base.data.valid, base.model), base.model)
        samples = Samples(scored_on, device, base.data.device)
        for seed in range(seeds):
            recipe = replace(base, train=replace(base.train, seed=base.train.seed + seed))
            run = find_run(folder, name, training_name(recipe, chosen_by))
            train(replace(recipe, emit=chosen_by), run, device=device)
            model = Anticipator.from_pretrained(run / "best").to(device)
            predictions = predict(model, samples, recipe.emission)
            result = score_of(samples, predictions)
            scores.append([*result.at.values(), result.avg])
            emitted += sum(map(len, predictions.values())) / len(samples)
            log(f"{name}, seed {recipe.train.seed}: mAP {100 * result.avg:.2f}")
        rows.append(Row(name, np.array(scores), emitted / seeds))
    return rows


def table(rows: list[Row], seeds: int, splits: Sequence[str] = ()) -> Table:
    """A table for the terminal: a row for each variant."""
    where = ", ".join(splits) or "validation"
    result = Table(title=f"mAP (%) on {where}, {seeds} seed(s)", title_justify="left", title_style="bold")
    result.add_column("")
    for heading in (*HEADINGS, "Avg", "per clip"):
        result.add_column(heading, justify="right")
    for row in rows:
        figures = row.as_dict()
        values = [f"{100 * v:.1f}" for v in list(figures["mean"].values())[:-1]]
        average = f"[bold]{100 * figures['mean']['avg']:.2f}[/] ± {100 * figures['deviation']['avg']:.2f}"
        result.add_row(escape(row.name), *values, average, f"{row.per_clip:.1f}")
    return result


def training_name(recipe: Recipe, chosen_by: EmitConfig) -> str:
    """A name for everything the weights depend on; `chosen_by` is the emission that the best epoch is chosen by."""
    text = to_yaml(replace(recipe, emit=chosen_by))
    return f"{sha256(text.encode()).hexdigest()[:12]}-seed{recipe.train.seed}"


def find_run(folder: Path, name: str, training: str) -> Path:
    """The folder of a training, found by its `training_name`; a new one begins with the variant's name, for people."""
    there = sorted(folder.glob(f"*{training}"))
    words = re.sub(r"[^\w.]+", "-", name).strip("-").lower()
    return there[0] if there else folder / f"{words}-{training}"

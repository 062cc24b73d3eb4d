"""What is reproduced, as data: the models, the ways of reading their answers, and what was published of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ballcast.core.pretrain_config import PretrainConfig


@dataclass(frozen=True)
class Variant:
    """A model of the table: a recipe that comes with ballcast, and key=value changes to it."""

    title: str
    config: str
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How a model's slots become scored predictions.

    - `emit`: changes to the model's own `EmitConfig`.
    - `read`: what the scorer reads, every entry of the class vectors or only label and confidence.
    - `tuned`: with the calibration fitted on the validation clips, where that helps.
    """

    title: str
    emit: Mapping[str, Any] = field(default_factory=dict)
    read: Literal["vector", "label"] = "vector"
    tuned: bool = False


RECIPES = {
    "paper": Variant("the paper's model", "paper"),
    "static": Variant("static queries", "paper", ("model.hierarchy.queries=static",)),
    "faantra": Variant("FAANTRA", "faantra"),
}

READINGS = {
    "untuned": Reading("untuned"),
    "label": Reading("untuned, only label and confidence", read="label"),
    "class-0.3": Reading("τ 0.3, every class", {"mode": "class", "vector": "emitted", "threshold": 0.3}),
    "class-0.05": Reading("τ 0.05, every class", {"mode": "class", "vector": "emitted", "threshold": 0.05}),
    "tuned": Reading("tuned", tuned=True),
    "tuned-label": Reading("tuned, only label and confidence", read="label", tuned=True),
}

# Published means (%) of the test server, by model and reading.
PUBLISHED_MEANS = {
    ("paper", "untuned"): 17.91,
    ("paper", "class-0.3"): 17.91,
    ("paper", "class-0.05"): 13.96,
    ("faantra", "untuned"): 18.05,
}
STATIC_GAIN = "about 0.8 points of validation mAP"

# Clips of SN-BAA, and the paper's own figures.
OFFICIAL_CLIPS = {"train": 4587, "valid": 1169, "test": 2376, "challenge": 2262}
PAPER_SAMPLES = 22_900
PAPER_CLASS_WEIGHTS = (0.28, 2.46)
PAPER_EPOCH = 17

# --quick: the whole way on little, to see that it works.
QUICK_CLIPS = 8  # of each split
QUICK_TRAIN = ("train.epochs=2", "train.warmup_epochs=1", "train.restart_epochs=1", "train.compile=false")
QUICK_PRETRAIN = (
    *("train.start=scratch", "train.epochs=1", "train.steps=2", "train.compile=false"),
    *("clips.batch=2", "clips.run=2"),
)
RESAMPLES, QUICK_RESAMPLES = 1000, 100  # of the clips, for the 95 % intervals


def stacks_a_step(config: PretrainConfig) -> int:
    """Stacks that one step of pre-training encodes: neighbouring clips of a run share theirs."""
    return config.clips.batch * (config.clips.run + config.network.stacks - 1)

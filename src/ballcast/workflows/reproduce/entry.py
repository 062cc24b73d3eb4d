"""The commands of a challenge entry with each recipe, from the download to the zip, with hours from measured rates.

The rates are of one H200, in `configs/throughput.json`, null where not measured (`python -m benchmarks.throughput`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ballcast.core.actions import CLIP_FRAMES, FPS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import Record, from_dict, load
from ballcast.core.embedded import RECIPES
from ballcast.core.errors import InputError
from ballcast.core.files import read_json
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.data.labels.soccernet import OFFICIAL_CLIPS
from ballcast.data.samples.windows import PAPER_SAMPLES, STEP_MS
from ballcast.workflows.reproduce.job import EVERY, stacks_a_step
from ballcast.workflows.reproduce.plan import clip_stacks, duration

THROUGHPUT = RECIPES / "throughput.json"


@dataclass(frozen=True)
class Rate(Record):
    """A throughput on one H200: `unit` per second, None if not measured; `measured`: the command that gave it."""

    unit: str
    h200: float | None = None
    measured: str = ""

    def __post_init__(self) -> None:
        if self.h200 is not None and self.h200 <= 0:
            raise InputError("a rate must be above 0, or null where it was not measured")


@dataclass(frozen=True)
class Throughput(Record):
    """All rates, by name."""

    rates: dict[str, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class Command:
    """A command of an entry.

    - `about`: what it computes.
    - `work`: names of rates, and how much of each it takes; none: it takes minutes, or depends on the network.
    """

    text: str
    about: str = ""
    work: tuple[tuple[str, float], ...] = ()

    def seconds(self, rates: dict[str, Rate]) -> float | None:
        """The time on one H200, None if a rate is not known."""
        total = 0.0
        for name, amount in self.work:
            rate = rates[name].h200
            if rate is None:
                return None
            total += amount / rate
        return total


def read_throughput(path: Path = THROUGHPUT) -> dict[str, Rate]:
    """Read the file of measured rates."""
    return from_dict(Throughput, {"rates": read_json(path, "throughputs")}, where=str(path)).rates


def entry_lines(names: Sequence[str], data: str = "snbaa", rates: dict[str, Rate] | None = None) -> Iterator[str]:
    """The entries with some of the recipes as lines of a shell script: each command below a comment with its time.

    Args:
        names: keys of `ENTRIES`.
        data: SN-BAA's folder.
        rates: None: those that come with ballcast.
    """
    for name in names:
        if name not in ENTRIES:
            raise InputError(f"no entry with the recipe {name!r}; choose from {', '.join(ENTRIES)}")
    known = read_throughput() if rates is None else rates
    for name in names:
        title, build = ENTRIES[name]
        commands = build(data)
        every = Command("", work=tuple(part for command in commands for part in command.work))
        yield f"# {name}: {title}; in all {_time(every, known)}"
        for command in commands:
            if command.work:
                yield f"# {command.about}: {_time(command, known)}"
            yield command.text
        yield ""
    yield "# Times are of decoding, training steps and extraction, from measured rates; the rest takes minutes."
    yield "# `tune` writes nothing where it does not help; then leave --calibration out."


def _time(command: Command, rates: dict[str, Rate]) -> str:
    seconds = command.seconds(rates)
    return f"{'not measured' if seconds is None else duration(seconds)} on one H200"


def _download(data: str, resolution: str) -> Command:
    return Command(f"ballcast download train valid test challenge --to {data} --resolution {resolution}")


def _extract(
    data: str, store: str, split: str, backbone: str, rate: str, *, dense: float = 1.0, mirrored: bool = False
) -> Command:
    """Features of a split; `dense`: how many times more stacks it takes than with windows 5 s apart."""
    seconds = OFFICIAL_CLIPS[split] * CLIP_FRAMES / FPS
    options = f" --every {EVERY[split]}" * (dense > 1) + " --mirrored" * mirrored
    return Command(
        f"ballcast extract {data}/{split} {store}/{split} --backbone {backbone}{options}",
        f"{seconds / 3600:.1f} h of video" + (f", {dense:.1f} times as many stacks" if dense > 1 else ""),
        ((rate, seconds * dense),),
    )


def _finish(data: str, name: str, models: Sequence[str], stores: Sequence[str]) -> list[Command]:
    """Tune on the validation clips, predict the challenge's clips, and write and check the zip."""
    out = f"runs/{name}-challenge"
    clips = f"{data}/challenge"
    valid = " ".join(f"--features {store}/valid" for store in stores)
    pairs = " ".join(f"--features {s}/challenge --model {m}" for s, m in zip(stores, models, strict=True))
    written = ""
    read = ""
    if len(models) > 1:  # one model keeps its calibration in its folder
        written, read = (f" --{option} runs/{name}.json" for option in ("out", "calibration"))
    return [
        Command(f"ballcast tune {' '.join(models)} {valid}{written}"),
        Command(f"ballcast predict {pairs}{read} --labels {clips} --out {out}.json"),
        Command(f"ballcast submit {out}.json --labels {clips} --out {out}.zip"),
        Command(f"ballcast submit --check {out}.zip --labels {clips}"),
    ]


def _paper(data: str) -> list[Command]:
    videos = f"{data}/224p"
    spotting = load(PretrainRecipe, Path("pretrain"))
    recipe = load(Recipe, Path("paper"))
    steps = spotting.train.epochs * spotting.train.steps
    backbone = "runs/backbone/best"
    store = "features/paper"
    model = "runs/paper/best"
    dense = clip_stacks(spotting.network, EVERY["train"]) / clip_stacks(spotting.network, EVERY["test"])
    return [
        _download(data, "224p"),
        Command(
            f"ballcast pretrain pretrain data.sources=[{videos}] --out runs/backbone",
            f"{steps} steps of {stacks_a_step(spotting)} stacks",
            (("decode 224p", _frames()), ("pretrain 224p", float(steps * stacks_a_step(spotting)))),
        ),
        _extract(videos, store, "train", backbone, "extract 224p", dense=dense),
        *(_extract(videos, store, split, backbone, "extract 224p") for split in ("valid", "challenge")),
        Command(
            f"ballcast train paper data.features={store} --out runs/paper",
            f"{recipe.train.epochs} epochs of {PAPER_SAMPLES} windows",
            (("train paper", float(recipe.train.epochs * PAPER_SAMPLES)),),
        ),
        *_finish(videos, "paper", [model], [store]),
    ]


def _end_to_end(name: str, videos: str, out: str, rates: tuple[str, str], *changes: str) -> Command:
    """A training of the recipe `name`; `rates`: of decoding and of training."""
    recipe = load(Recipe, Path(name))
    stacks = recipe.model.windows * recipe.model.clips
    changed = "".join(f" {change}" for change in changes)
    return Command(
        f"ballcast train {name} games.sources=[{videos}]{changed} --out {out}",
        f"{recipe.train.epochs} epochs of {PAPER_SAMPLES} samples with {stacks} stacks",
        ((rates[0], _frames()), (rates[1], float(recipe.train.epochs * PAPER_SAMPLES * stacks))),
    )


def _frames() -> float:
    """Frames to decode for a training: the clips of train and valid begin 5 s apart, and each frame is decoded once."""
    return float(sum(OFFICIAL_CLIPS[split] for split in ("train", "valid")) * STEP_MS // 1000 * FPS)


def _head(videos: str, start: str, out: str) -> Command:
    """The head of an end-to-end model trained further, on features that are computed once: as they are and mirrored
    of the training games, beginning at every frame (twice as many) of the validation games."""
    recipe = load(Recipe, Path("e2e-head"))
    samples = recipe.train.epochs * PAPER_SAMPLES
    return Command(
        f"ballcast train e2e-head games.sources=[{videos}] encoder.start={start} --out {out}",
        f"features once, then {recipe.train.epochs} epochs of {PAPER_SAMPLES} samples",
        (("features e2e", 2 * _frames() / FPS), ("train e2e head", float(samples * recipe.model.clips))),
    )


def _e2e(data: str) -> list[Command]:
    """One training, then one of its head alone; predictions are averaged with those for mirrored frames."""
    videos = f"{data}/224p"
    store = "features/e2e"
    mirrored = "features/e2e-mirrored"
    model = "runs/e2e-head/best"
    return [
        _download(data, "224p"),
        _end_to_end("e2e", videos, "runs/e2e", ("decode 224p", "train e2e")),
        _head(videos, "runs/e2e/best", "runs/e2e-head"),
        *(
            _extract(videos, folder, split, f"{model}_backbone", "extract e2e", mirrored=folder != store)
            for folder in (store, mirrored)
            for split in ("valid", "challenge")
        ),
        *_finish(videos, "e2e", [model, model], [store, mirrored]),
    ]


def _winner(data: str) -> list[Command]:
    """Two encoders, each in two phases: from ImageNet weights, then from the result."""
    videos = f"{data}/720p"
    commands = [_download(data, "720p")]
    encoders = {"008": (), "006": ("encoder.network.encoder=regnety_006.pycls_in1k",)}
    models = []
    stores = []
    for encoder, changes in encoders.items():
        first = f"runs/ws1-{encoder}"
        second = f"runs/ws2-{encoder}"
        store = f"features/ws-{encoder}"
        rates = ("decode 720p", "train faantra-ws")
        commands += [
            _end_to_end("faantra-ws", videos, first, rates, *changes),
            _end_to_end("faantra-ws", videos, second, rates, *changes, f"encoder.start={first}/best"),
        ]
        commands += [
            _extract(videos, store, split, f"{second}/best_backbone", "extract faantra-ws")
            for split in ("valid", "challenge")
        ]
        models.append(f"{second}/best")
        stores.append(store)
    return [*commands, *_finish(videos, "faantra-ws", models, stores)]


ENTRIES = {
    "paper": ("the paper's model on the features of a backbone you train, at 224p", _paper),
    "faantra-ws": ("the 2026 winner's recipe, two encoders averaged, at 448 of 720 lines", _winner),
    "e2e": ("from frames to predictions end to end, then its head alone, at 224p", _e2e),
}

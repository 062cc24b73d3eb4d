"""Train the end-to-end model on films that are being filmed meanwhile, on a machine with a GPU.

    films/film FILMS 6001-6400 --jobs 14 &
    python -m tools.train_films FILMS OUT --seconds 1600 [--start OUT/state.pt]

FILMS is a folder into which `tools.simulate` or its archive writes films as arrays: match_SEED.npy (frames, 336·398)
uint8, I420 of 224×398 at 12.5 frames a second, and matches.json with their actions. Films are taken once they are
labelled, kept on the GPU, and removed from the folder; when there is no room left, a new film replaces the oldest.
Seeds from 8001 to 8999 are for validation and 7001 to 7010 for testing. The learning rate falls over the last quarter
of the time.

OUT gets log.txt, every minute state.pt (weights and the optimizer's state) and ema.pt (the moving average of the
weights), and at the end features/: match_SEED.npy, the features of the stacks of each film that is there, (stacks, D)
float16, and matches.json with its actions. `tools.train_heads` trains anticipators on them.
"""

import argparse
import json
import math
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import ACTIONS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.embedded import find_recipe
from ballcast.data.labels.games import MATCHES
from ballcast.data.samples.game_samples import spotting_targets
from ballcast.features.frame_network import i420_to_rgb, to_channels_last
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import Targets
from ballcast.model.end_to_end import EndToEnd
from ballcast.training.ema import Ema
from ballcast.training.optimizer import build_optimizer, set_learning_rate
from ballcast.training.switches import use_triton
from ballcast.training.television import cut_in, lightly, like_television

EVERY = 2  # video frames from one frame of a film to the next
SIZE = (224, 398)  # H, W
VALID = range(8001, 9000)
TEST = range(7001, 7011)
PASSES = (0, 3, 5)  # pass, high pass, cross
FEATURES = "features"


def _setting(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": f"{about} ({default})"})


@dataclass(frozen=True)
class Settings:
    """How to optimise."""

    batch: int = _setting(12, "samples of a step")
    lr: float = _setting(6e-4, "learning rate after the warm-up")
    heavy: float = _setting(0.5, "share of samples that are changed to look like television")
    mixup: float = _setting(0.3, "a of MixUp's Beta(a, a)")
    room: int = _setting(120, "films kept on the GPU")
    least: int = _setting(14, "films before the first step")
    seed: int = _setting(0, "of weights and samples")
    save_every: float = _setting(60.0, "seconds between saved states")
    validate_every: float = _setting(200.0, "seconds between validations")


class Film:
    """A film on the device: frames (T, 336, 398) I420, and its targets."""

    def __init__(self, seed: int, frames: Tensor, actions: list[dict[str, Any]], sigma_ms: float) -> None:
        self.seed = seed
        self.frames = frames.view(len(frames), SIZE[0] * 3 // 2, SIZE[1])
        self.events = sorted((int(a["position"]), ACTIONS.index(a["label"])) for a in actions)
        self.position_ms = np.array([p for p, _ in self.events], np.int64)
        self.classes = np.array([c for _, c in self.events], np.int64)
        table = spotting_targets([self.events], np.array([len(frames) * EVERY]), sigma_ms)
        self.presence = torch.from_numpy(table[::EVERY]).to(frames.device)  # (T, C)

    def __len__(self) -> int:
        return len(self.frames)

    def rgb(self, first: int, count: int) -> Tensor:
        """Frames in colour, (count, 3, H, W) in [0, 255]."""
        return i420_to_rgb(self.frames[first : first + count]) * 255

    def to_come(self, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes and positions in ms (8,) of the actions in the 5 s from the video frame `frame` on."""
        now = frame * 40
        begin, end = np.searchsorted(self.position_ms, [now, now + HORIZON_MS])
        end = min(end, begin + MAX_EVENTS)
        classes = np.full(MAX_EVENTS, -1, np.int64)
        position = np.full(MAX_EVENTS, OBSERVED_MS, np.int64)
        classes[: end - begin] = self.classes[begin:end]
        position[: end - begin] = self.position_ms[begin:end] - now + OBSERVED_MS
        return classes, position


class Films:
    """The films that are there; a thread takes new ones from the folder."""

    def __init__(self, folder: Path, device: torch.device, room: int, sigma_ms: float) -> None:
        self.folder, self.device, self.room, self.sigma_ms = folder, device, room, sigma_ms
        self.train: list[Film] = []
        self.valid: list[Film] = []
        self.test: list[Film] = []
        self.taken = 0
        self.stopped = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self.stopped:
            labels = self._labels()
            for path in sorted(self.folder.glob("match_*.npy")):
                if path.name not in labels:
                    continue
                try:
                    self._take(path, labels[path.name])
                except (OSError, ValueError, KeyError) as error:
                    print(f"{path}: {error}", flush=True)
                    path.rename(path.with_suffix(".bad"))
            time.sleep(1)

    def _labels(self) -> dict[str, list[dict[str, Any]]]:
        """The actions of each film that is labelled, by the film's name."""
        path = self.folder / MATCHES
        if not path.is_file():
            return {}
        return {entry["video"]: entry["actions"] for entry in json.loads(path.read_text())}

    def _take(self, path: Path, actions: list[dict[str, Any]]) -> None:
        seed = int(path.stem.removeprefix("match_"))
        frames = torch.from_numpy(np.load(path)).to(self.device)
        film = Film(seed, frames, actions, self.sigma_ms)
        if seed in VALID:
            self.valid.append(film)
        elif seed in TEST:
            self.test.append(film)
        elif len(self.train) < self.room:
            self.train.append(film)
        else:
            self.train[self.taken % self.room] = film
        self.taken += 1
        path.unlink()


def draw_batch(
    films: list[Film], model: EndToEnd, batch: int, heavy: float, rng: np.random.Generator
) -> tuple[Tensor, Targets]:
    """Draw samples: frames (B, 3 F, H, W) in [0, 1], and their targets."""
    offsets = model.frame_offsets // EVERY  # (F,)
    count = int(offsets[-1]) + 1
    middles = torch.from_numpy(model.middles // EVERY)
    frames, presence, classes, position_ms = [], [], [], []
    device = films[0].frames.device
    for _ in range(batch):
        film = films[int(rng.integers(len(films)))]
        first = int(rng.integers(0, len(film) - WINDOW_FRAMES // EVERY * 2 - 2))
        clip = film.rgb(first, count)
        there = film.presence[first + middles.to(device)]  # (N, C)
        if rng.random() < 0.08:
            other = films[int(rng.integers(len(films)))]
            clip, play = cut_in(clip, other.rgb(int(rng.integers(0, len(other) - count)), count), rng)
            there = there * play[middles.to(device)][:, None]
        clip = like_television(clip, rng) if rng.random() < heavy else lightly(clip, rng)
        coming = film.to_come(first * EVERY + WINDOW_FRAMES)
        frames.append(clip[torch.from_numpy(offsets).to(device)].flatten(0, 1) / 255)
        presence.append(there)
        classes.append(coming[0])
        position_ms.append(coming[1])
    targets = Targets.from_ms(
        torch.from_numpy(np.stack(classes)).to(device),
        torch.from_numpy(np.stack(position_ms)).to(device),
        model.anticipator.config.bins,
        torch.stack(presence),
    )
    return torch.stack(frames), targets


def mixed_losses(model: EndToEnd, criterion: Criterion, seen: Tensor, targets: Targets, share: float) -> Losses:
    """The losses of samples mixed with their neighbours in the batch: the targets of both count, by their share."""
    seen = torch.lerp(seen.roll(1, 0), seen, share)
    with torch.autocast(seen.device.type, torch.bfloat16, enabled=seen.is_cuda):
        slots, _ = model(seen)
    assert targets.presence is not None
    each = (targets.classes, targets.bins, targets.times, targets.presence)
    both = Targets(*(torch.cat([t, t.roll(1, 0)]) for t in each))
    weight = torch.cat([seen.new_full((len(seen),), share), seen.new_full((len(seen),), 1 - share)])
    return criterion(slots.map(lambda t: torch.cat([t, t])), both, weight)


@torch.no_grad()
def presence_along(model: EndToEnd, film: Film, batch: int = 8) -> np.ndarray:
    """Spotting probabilities of every frame of a film, (T, C): windows that overlap by half, averaged."""
    offsets = model.frame_offsets // EVERY
    count = int(offsets[-1]) + 1
    hop = model.stacks // 2
    starts = sorted({*range(0, len(film) - count, hop), len(film) - count})
    weight = 1.0 + np.minimum(np.arange(model.stacks), np.arange(model.stacks)[::-1])[:, None]
    total = np.zeros((len(film), len(ACTIONS)))
    mass = np.zeros((len(film), 1))
    for begin in range(0, len(starts), batch):
        some = starts[begin : begin + batch]
        seen = torch.stack([film.rgb(s, count)[torch.from_numpy(offsets).to(film.frames.device)] for s in some]) / 255
        with torch.autocast(seen.device.type, torch.bfloat16, enabled=seen.is_cuda):
            slots, _ = model(seen.flatten(1, 2))
        assert slots.presence is not None
        for start, p in zip(some, slots.presence.float().sigmoid().cpu().numpy(), strict=True):
            at = start + model.middles // EVERY
            total[at] += p * weight
            mass[at] += weight
    return total / np.maximum(mass, 1)


@torch.no_grad()
def stack_features(model: EndToEnd, film: Film) -> Tensor:
    """The features of every stack of a film, (stacks, D): stack i reads the film's frames i, i + 1 and i + 2."""
    offsets = torch.from_numpy(model.frame_offsets // EVERY).to(film.frames.device)
    count = int(offsets[-1]) + 1
    last = len(film) - count
    found = film.frames.new_empty((last + model.stacks, model.backbone.config.width), dtype=torch.float32)
    for start in sorted({*range(0, last, model.stacks), last}):
        seen = film.rgb(start, count)[offsets].flatten(0, 1)[None] / 255
        with torch.autocast(seen.device.type, torch.bfloat16, enabled=seen.is_cuda):
            found[start : start + model.stacks] = model.features(seen)[0, 0].float()
    return found


def frame_auc(scores: np.ndarray, times_s: np.ndarray, events_s: np.ndarray, within_s: float = 0.3) -> float:
    """The chance that a frame near an action scores above one that is not."""
    near = np.abs(times_s[:, None] - events_s).min(1, initial=np.inf) <= within_s
    if near.all() or not near.any():
        return math.nan
    order = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1.0
    positive = near.sum()
    return float((order[near].sum() - positive * (positive + 1) / 2) / (positive * (len(near) - positive)))


def validate(model: EndToEnd, films: list[Film]) -> str:
    """Frame AUC of passes and drives on the films of validation."""
    groups = {"pass": PASSES, "drive": (1,), "header": (2,), "shot": (6,), "tackle": (9,), "any": tuple(range(10))}
    model.eval()
    parts: dict[str, list[float]] = {name: [] for name in groups}
    for film in films:
        scores = presence_along(model, film)
        times = np.arange(len(film)) * EVERY / 25
        for name, classes in groups.items():
            events = np.array([p / 1000 for p, c in film.events if c in classes])
            parts[name].append(frame_auc(scores[:, classes].sum(1), times, events))
    model.train()
    return ", ".join(f"{name} {np.nanmean(values):.3f}" for name, values in parts.items())


class FilmTraining:
    """A training on films: the model, its moving average, the optimizer, and what is written of it.

    Args:
        films: the folder films come into.
        out: the folder that is written.
        seconds: until training ends, counted from now.
        settings: of the optimisation.
    """

    def __init__(self, films: Path, out: Path, seconds: float, settings: Settings, start: Path | None) -> None:
        self.began = time.monotonic()
        self.out, self.seconds, self.settings = out, seconds, settings
        out.mkdir(parents=True, exist_ok=True)
        self._log = (out / "log.txt").open("a", buffering=1)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")
        self.recipe = film_recipe()
        torch.manual_seed(settings.seed)
        self.rng = np.random.default_rng([settings.seed, 1])
        self.model = new_model(self.recipe).to(device)
        self.films = Films(films, device, settings.room, self.recipe.loss.auxiliary_sigma_ms)
        state: dict[str, Any] = torch.load(start, map_location=device, weights_only=True) if start else {}
        if "net" in state:
            self.model.load_state_dict(state["net"])
        elif any(key.startswith("backbone.") for key in state):  # ema.pt
            self.model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items()})
        else:
            self.model.backbone.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
        if device.type == "cuda":
            to_channels_last(self.model.backbone)
            use_triton(self.model.backbone.encoder)
        self.criterion = Criterion(config=self.recipe.loss, model=self.recipe.model).to(device)
        self.optimizer = build_optimizer(self.model, self.recipe.train)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.ema = Ema(self.model, self.recipe.train.ema)
        if "optimizer" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        self.step = self.first_step = int(state.get("step", 0))

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self.began:6.0f} s  {text}"
        print(line, flush=True)
        self._log.write(line + "\n")

    @property
    def used(self) -> float:
        """The share of the time that has passed."""
        return (time.monotonic() - self.began) / self.seconds

    def run(self) -> None:
        """Train until the time is over; validate and save in between and at the end."""
        while len(self.films.train) < self.settings.least:
            if time.monotonic() - self.began > 300:
                raise SystemExit(f"after 300 s only {len(self.films.train)} films are there")
            time.sleep(1)
        self.say(f"{len(self.films.train)} films to train on, {len(self.films.valid)} to validate on")
        self.model.train()
        saved = validated = started = time.monotonic()
        recent: list[Tensor] = []
        while self.used < 1:
            recent.append(self.take_step())
            if self.step - self.first_step in (5, 20, 50, 100) or self.step % 250 == 0:
                self.report(torch.stack(recent).mean(0), started)
                recent.clear()
            now = time.monotonic()
            if now - validated > self.settings.validate_every and self.used < 0.95:
                self.validate()
                validated = time.monotonic()
            if now - saved > self.settings.save_every:
                self.save()
                saved = now
        self.save()
        self.validate()
        self.films.stopped = True
        self.write_features()
        self.say(f"done: {self.step} steps, {self.films.taken} films")
        (self.out / "done").touch()

    def take_step(self) -> Tensor:
        """One step of the optimizer; returns the losses."""
        settings = self.settings
        warm = min(1.0, (self.step - self.first_step + 1) / 200)
        late = max(0.0, self.used - 0.75) / 0.25
        rate = settings.lr * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(1.0, late))))
        set_learning_rate(self.optimizer, rate)
        seen, targets = draw_batch(self.films.train, self.model, settings.batch, settings.heavy, self.rng)
        share = float(self.rng.beta(settings.mixup, settings.mixup))
        losses = mixed_losses(self.model, self.criterion, seen, targets, share)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.train.clip)
        self.optimizer.step()
        self.ema.update()
        self.step += 1
        return torch.stack(losses).detach()

    def report(self, losses: Tensor, started: float) -> None:
        values = losses.tolist()
        if not all(map(math.isfinite, values)):
            raise SystemExit(f"step {self.step}: the loss is not finite: {values}")
        each = (time.monotonic() - started) / (self.step - self.first_step)
        shown = " ".join(f"{value:.3f}" for value in values)
        films = f"{len(self.films.train)} films, {self.films.taken} taken"
        self.say(f"step {self.step}, {each:.3f} s each, {films}; losses {shown}")

    def validate(self) -> None:
        if self.films.valid:
            with self.ema.swapped():
                self.say(f"step {self.step}: AUC {validate(self.model, self.films.valid)}")

    def write_features(self) -> None:
        """Write the features of the films that are there, by the moving average of the weights, and their actions."""
        folder = self.out / FEATURES
        folder.mkdir(exist_ok=True)
        films = {film.seed: film for film in [*self.films.train, *self.films.valid, *self.films.test]}
        with self.ema.swapped():
            self.model.eval()
            for seed, film in films.items():
                np.save(folder / f"match_{seed}.npy", stack_features(self.model, film).half().cpu().numpy())
        entries = [
            {
                "video": f"match_{seed}.npy",
                "split": "valid" if seed in VALID else "test" if seed in TEST else "train",
                "frames": len(film) * EVERY,
                "actions": [{"position": position, "label": ACTIONS[action]} for position, action in film.events],
            }
            for seed, film in films.items()
        ]
        (folder / MATCHES).write_text(json.dumps(entries))

    def save(self) -> None:
        """Write state.pt and ema.pt, each whole or not at all; the optimizer's moments are kept as bfloat16."""

        def small(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.bfloat16() if value.numel() > 1 and value.is_floating_point() else value
            if isinstance(value, dict):
                return {k: small(v) for k, v in value.items()}
            return [small(v) for v in value] if isinstance(value, list) else value

        with self.ema.swapped():
            state = self.model.state_dict()
            mean = {k: (v.half() if v.is_floating_point() else v).cpu().clone() for k, v in state.items()}
        whole = {"net": self.model.state_dict(), "optimizer": small(self.optimizer.state_dict()), "step": self.step}
        for name, value in (("ema.pt", mean), ("state.pt", whole)):
            torch.save(value, self.out / f".{name}")
            (self.out / f".{name}").replace(self.out / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, required=True, help="until training ends")
    parser.add_argument("--start", type=Path, help="state.pt to continue, or weights of the encoder's network alone")
    for setting in fields(Settings):
        option = "--" + setting.name.replace("_", "-")
        parser.add_argument(option, type=type(setting.default), default=setting.default, help=setting.metadata["help"])
    given = vars(parser.parse_args())
    settings = Settings(**{setting.name: given.pop(setting.name) for setting in fields(Settings)})
    FilmTraining(settings=settings, **given).run()


def film_recipe() -> Recipe:
    """The recipe `e2e`, with stacks of three frames 80 ms apart, the middle one in colour."""
    changes = ["encoder.network.step=2", "encoder.network.colour=true", "model.clips=61"]
    return load(Recipe, find_recipe(Path("e2e")), changes)


def new_model(recipe: Recipe) -> EndToEnd:
    """The encoder and the head before their first step, with random weights."""
    from ballcast.features.backbone import Backbone
    from ballcast.model.anticipator import Anticipator

    backbone = Backbone(recipe.encoder.network, name="ballcast-frames")
    backbone.classifier.requires_grad_(False)
    head = Anticipator(recipe.model, emit=recipe.emission, metadata={"pos_weight": recipe.loss.pos_weight})
    return EndToEnd(backbone.train(), head.train())


if __name__ == "__main__":
    main()

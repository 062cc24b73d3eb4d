"""Train the end-to-end model on films that are being filmed meanwhile, on a machine with a GPU.

    python -m tools.train_films FILMS OUT --seconds 1600 [--start OUT_BEFORE]

FILMS is a folder into which films come as arrays (see `tools.simulation`): match_SEED.npy (frames, 336·398) uint8, I420
of 224×398 at 12.5 frames a second, and match_SEED.states.npz.json, its actions. Films are taken as they appear, kept on
the GPU, and removed from the folder; once there is no room, a new film replaces the oldest. Seeds from 8001 to 8999 are
for validation. Training ends after so many seconds; the learning rate falls over their last quarter.

OUT gets log.txt, and every minute state.pt: weights, their moving average, and the optimizer's state.
"""

import argparse
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ballcast.core.actions import ACTIONS, HORIZON_MS, MAX_EVENTS, OBSERVED_MS, WINDOW_FRAMES
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import load
from ballcast.core.embedded import find_recipe
from ballcast.data.samples.game_samples import spotting_targets
from ballcast.features.frame_network import i420_to_rgb, to_channels_last
from ballcast.loss.criterion import Criterion, Losses
from ballcast.loss.matcher import Targets
from ballcast.training.ema import Ema
from ballcast.training.learner import EndToEnd, use_triton
from ballcast.training.steps import build_optimizer, set_learning_rate
from ballcast.training.television import cut_in, lightly, like_television

EVERY = 2  # video frames from one frame of a film to the next
SIZE = (224, 398)  # H, W
VALID = range(8001, 9000)
PASSES = (0, 3, 5)  # pass, high pass, cross


class Film:
    """A film on the device: frames (T, 336, 398) I420, and its targets."""

    def __init__(self, seed: int, frames: Tensor, actions: list[dict[str, Any]], sigma_ms: float) -> None:
        self.seed = seed
        self.frames = frames.view(len(frames), SIZE[0] * 3 // 2, SIZE[1])
        number = {label: i for i, label in enumerate(ACTIONS)}
        events = [
            (a["position"], number[a["action"]] if isinstance(a["action"], str) else a["action"]) for a in actions
        ]
        self.events = sorted(events)
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
        """Classes and times (8,) of the actions in the 5 s from the frame `frame` on, as the matcher wants them."""
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
        self.taken = 0
        self.stopped = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self.stopped:
            for path in sorted(self.folder.glob("match_*.npy")):
                try:
                    self._take(path)
                except (OSError, ValueError, KeyError) as error:
                    print(f"{path}: {error}", flush=True)
                    path.rename(path.with_suffix(".bad"))
            time.sleep(1)

    def _take(self, path: Path) -> None:
        seed = int(path.stem.removeprefix("match_"))
        actions = json.loads(path.with_name(f"match_{seed}.states.npz.json").read_text())
        frames = torch.from_numpy(np.load(path)).to(self.device)
        film = Film(seed, frames, actions, self.sigma_ms)
        if seed in VALID:
            self.valid.append(film)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, required=True, help="until training ends")
    parser.add_argument("--start", type=Path, help="state.pt to go on from, or weights of the encoder's network alone")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--heavy", type=float, default=0.5, help="share of samples made like television")
    parser.add_argument("--mixup", type=float, default=0.3)
    parser.add_argument("--room", type=int, default=150, help="films kept on the GPU")
    parser.add_argument("--least", type=int, default=14, help="films before the first step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=float, default=60)
    parser.add_argument("--validate-every", type=float, default=200)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    log = (given.out / "log.txt").open("a", buffering=1)

    def say(text: str) -> None:
        line = f"{time.monotonic() - began:6.0f} s  {text}"
        print(line, flush=True)
        log.write(line + "\n")

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    recipe = film_recipe()
    torch.manual_seed(given.seed)
    rng = np.random.default_rng([given.seed, 1])
    model = new_model(recipe).to(device)
    films = Films(given.films, device, given.room, recipe.loss.auxiliary_sigma_ms)
    state: dict[str, Any] = {}
    if given.start is not None:
        state = torch.load(given.start, map_location=device, weights_only=True)
        if "net" in state:
            model.load_state_dict(state["net"])
        else:
            model.backbone.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    if device.type == "cuda":
        to_channels_last(model.backbone)
        use_triton(model.backbone.encoder)
    criterion = Criterion(config=recipe.loss, model=recipe.model).to(device)
    optimizer = build_optimizer(model, recipe.train)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    ema = Ema(model, recipe.train.ema)
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    step = int(state.get("step", 0))
    del state
    while len(films.train) < given.least:
        if time.monotonic() - began > 300:
            raise SystemExit(f"after 300 s only {len(films.train)} films are there")
        time.sleep(1)
    say(f"{len(films.train)} films to train on, {len(films.valid)} to validate on; {device}")
    model.train()
    start_step, start_time = step, time.monotonic()
    saved = validated = time.monotonic()
    recent: list[Tensor] = []
    while (used := (time.monotonic() - began) / given.seconds) < 1:
        warm = min(1.0, (step - start_step + 1) / 200)
        fall = 1.0 if used < 0.75 else 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * (used - 0.75) / 0.25))
        set_learning_rate(optimizer, given.lr * warm * fall)
        seen, targets = draw_batch(films.train, model, given.batch, given.heavy, rng)
        losses = mixed_losses(model, criterion, seen, targets, float(rng.beta(given.mixup, given.mixup)))
        optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe.train.clip)
        optimizer.step()
        ema.update()
        step += 1
        recent.append(torch.stack(losses).detach())
        if step - start_step in (5, 20, 50, 100) or step % 250 == 0:
            mean = torch.stack(recent).mean(0).tolist()
            recent.clear()
            if not all(map(math.isfinite, mean)):
                raise SystemExit(f"step {step}: the loss is not finite: {mean}")
            each = (time.monotonic() - start_time) / (step - start_step)
            shown = " ".join(f"{value:.3f}" for value in mean)
            say(f"step {step}, {each:.3f} s each, {len(films.train)} films, {films.taken} taken; losses {shown}")
        now = time.monotonic()
        if films.valid and now - validated > given.validate_every and used < 0.95:
            with ema.swapped():
                say(f"step {step}: AUC {validate(model, films.valid)}")
            validated = time.monotonic()
        if now - saved > given.save_every:
            save_state(given.out, model, ema, optimizer, step)
            saved = now
    save_state(given.out, model, ema, optimizer, step)
    if films.valid:
        with ema.swapped():
            say(f"step {step}: AUC {validate(model, films.valid)}")
    say(f"done: {step} steps, {films.taken} films")
    (given.out / "done").touch()


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


def save_state(out: Path, model: EndToEnd, ema: Ema, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write state.pt and ema.pt, each whole or not at all; the optimizer's moments are kept as bfloat16."""

    def small(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.bfloat16() if value.numel() > 1 and value.is_floating_point() else value
        if isinstance(value, dict):
            return {k: small(v) for k, v in value.items()}
        return [small(v) for v in value] if isinstance(value, list) else value

    with ema.swapped():
        mean = {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}
        mean = {k: v.cpu().clone() for k, v in mean.items()}
    whole = {"net": model.state_dict(), "optimizer": small(optimizer.state_dict()), "step": step}
    for name, value in (("ema.pt", mean), ("state.pt", whole)):
        torch.save(value, out / f".{name}")
        (out / f".{name}").replace(out / name)


if __name__ == "__main__":
    main()

"""The next event on the field's own scale: its action and time, as OpenSTARLab reports them.

    python -m benchmarks.next_event --train 60 --test 20 [--peers FOLDER] [--seconds 60]

Rows follow OpenSTARLab's UIED format of Wyscout's matches: events of the team in possession in nine classes (short
pass, carry, high pass, end of possession, cross, long pass, shot, dribble, goal), times between them, places. From 40
rows the next one is predicted; accuracy and macro F1 of its class, mean absolute error of its time in s, as in its
tables.

--peers: the folder into which `pip install --target FOLDER --no-deps openstarlab-event` put its package: its networks
NMSTPP and Seq2Event are then trained with its own cost function and optimiser on the same rows, for as many seconds.
What differs from the published tables: they were trained on 60 % of all matches for many epochs, with a search of
sizes, and their split is not published.

Data: Wyscout (Pappalardo, Massucco et al., figshare 2019; Scientific Data 6, 236 (2019); CC BY 4.0).
"""

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ballcast.core.files import write_json
from ballcast.model.layers import EncoderLayer, embedding
from benchmarks.events import TABLE

CLASSES = ("short_pass", "carry", "high_pass", "_", "cross", "long_pass", "shot", "dribble", "goal")
END, GOAL, SHOT = CLASSES.index("_"), CLASSES.index("goal"), CLASSES.index("shot")
GROUPS = {  # sub-event → class; passes by their length
    **dict.fromkeys(("Goal kick", "Throw in", "Free Kick", "Cross", "Hand pass", "Simple pass", "Smart pass"), "pass"),
    **{"Head pass": "pass", "High pass": "high_pass", "Acceleration": "carry", "Air duel": "dribble"},
    **dict.fromkeys(("Free kick shot", "Penalty", "Shot"), "shot"),
    **dict.fromkeys(("Corner", "Free kick cross"), "cross"),
}
TAKES = frozenset((*GROUPS, "Launch", "Clearance")) - {"Air duel"}  # events by which a team takes possession
DRIBBLES = {501, 502, 503, 504}
LENGTH = 40  # rows that are read
COLUMNS = ("delta_T", "start_x", "start_y", "seconds", "deltaX", "deltaY", "distance", "dist2goal", "angle2goal")
FEW = np.float32(1e-6)
PEERS: dict[str, tuple[int, ...]] = {"NMSTPP": (64,), "Seq2Event": (2, 64)}  # their last sizes: layers, features


def read_rows(path: Path, chosen: Callable[[list[tuple[str, int]]], list[int]]) -> list[dict[str, Any]]:
    """The periods of the chosen matches: `action` (n,), `values` (n, 9) in the order of `COLUMNS`."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    column = {name: table[name].to_numpy() for name in ("match", "t_ms", "team", "x0", "y0", "x1", "y1")}
    text = {name: table[name].combine_chunks() for name in ("competition", "period", "event", "sub_event")}
    bounds = np.flatnonzero(np.append(True, np.diff(column["match"]) != 0))
    ends = [*bounds[1:].tolist(), len(column["match"])]
    competitions = [(str(text["competition"][int(i)].as_py()), int(column["match"][i])) for i in bounds]
    wanted, found = set(chosen(competitions)), []
    for begin, end in zip(bounds.tolist(), ends, strict=True):
        if int(column["match"][begin]) not in wanted:
            continue
        part = slice(begin, end)
        names = {name: text[name][begin:end].to_pylist() for name in ("period", "event", "sub_event")}
        tags = table["tags"][begin:end].to_pylist()
        for period in ("1H", "2H"):
            own = [i for i, p in enumerate(names["period"]) if p == period]
            rows = {name: column[name][part][own] for name in column}
            kinds = [_kind(names["event"][i], names["sub_event"][i], set(tags[i])) for i in own]
            found.append(_period(rows, kinds))
    return found


def _kind(event: str, sub_event: str, tags: set[int]) -> tuple[str, bool, bool]:
    """A row's class ("": left out), whether its team takes possession by it, and whether it is a goal."""
    if event == "Duel" and tags & DRIBBLES:
        return "dribble", True, False
    if sub_event == "Touch":
        return ("dribble", True, False) if not tags else ("", False, False)
    group = GROUPS.get(sub_event, "")
    return group, sub_event in TAKES, group == "shot" and 101 in tags


def _period(rows: dict[str, Any], kinds: list[tuple[str, bool, bool]]) -> dict[str, Any]:
    """The rows of one period: those of the team in possession, with a row at the end of each possession."""
    holder: int | None = None
    listed: list[tuple[float, ...]] = []  # class, seconds, time since the row before, x, y
    for i, (group, takes, goal) in enumerate(kinds):
        team = int(rows["team"][i])
        if holder is None or (team != holder and takes):
            if holder is not None and listed and listed[-1][0] != END:
                listed.append((END, listed[-1][1], 0.0, *listed[-1][3:]))
            holder = team
        if team != holder or not group:
            continue
        x0, y0, x1, y1 = (float(rows[name][i]) for name in ("x0", "y0", "x1", "y1"))
        far = np.hypot((x0 - x1) * 1.05, (y0 - y1) * 0.68) >= 45
        name = ("long_pass" if far else "short_pass") if group == "pass" else "goal" if goal else group
        at = float(rows["t_ms"][i]) / 1000
        last = listed[-1] if listed else (0, at, 0.0, x0, y0)
        listed.append((CLASSES.index(name), at, at - last[1], x0, y0))
    array = np.array(listed, np.float64).reshape(-1, 5)
    actions, times, gaps, xs, ys = array.T
    dx, dy = np.diff(xs, prepend=xs[:1]), np.diff(ys, prepend=ys[:1])
    to_goal = np.hypot((xs - 100) * 1.05, (ys - 50) * 0.68)
    angle = np.abs(np.arctan2((ys - 50) * 0.68, (xs - 100) * 1.05))
    values = [gaps, xs, ys, times, dx, dy, np.hypot(dx * 1.05, dy * 0.68), to_goal, angle]
    return {"action": actions.astype(np.int64), "values": np.stack(values, 1).astype(np.float32)}


def windows(periods: list[dict[str, Any]], scale: Any) -> tuple[Tensor, Tensor]:
    """Inputs (n, 40, 1 + 9) and targets (n, 4): action, then time and place scaled to [0, 1]."""
    inputs, targets = [], []
    for period in periods:
        values = _scaled(period["values"], scale)
        rows = np.concatenate([period["action"][:, None].astype(np.float32), values], 1)
        if len(rows) > LENGTH:
            view = np.lib.stride_tricks.sliding_window_view(rows, LENGTH, axis=0)[:-1]
            inputs.append(view.transpose(0, 2, 1))
            targets.append(rows[LENGTH:, :4])
    return torch.from_numpy(np.concatenate(inputs).copy()), torch.from_numpy(np.concatenate(targets).copy())


def _scaled(values: Any, scale: Any) -> Any:
    logged = values.copy()
    logged[:, 0] = np.log(values[:, 0].clip(0) + FEW)
    low, high = scale
    return ((logged - low) / (high - low)).clip(0, 1).astype(np.float32)


def scale_of(periods: list[dict[str, Any]]) -> Any:
    values = np.concatenate([period["values"] for period in periods])
    values[:, 0] = np.log(values[:, 0].clip(0) + FEW)
    return values.min(0), values.max(0)


class Ours(nn.Module):
    """A Transformer encoder over the last 16 rows; the next class, and the time as a distribution over 64 steps."""

    def __init__(self, dim: int = 64, layers: int = 2, steps: int = 64, read: int = 16) -> None:
        super().__init__()
        self.action = embedding(len(CLASSES), dim, std=0.02)
        self.rank = embedding(read, dim, std=0.02)
        self.values = nn.Sequential(nn.Linear(len(COLUMNS), dim), nn.GELU(), nn.Linear(dim, dim))
        self.layers = nn.ModuleList(EncoderLayer(dim=dim, heads=4, ffn=2 * dim, dropout=0.0) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.heads = nn.ModuleDict(
            {"action": nn.Linear(dim, len(CLASSES)), "time": nn.Linear(dim, steps), "place": nn.Linear(dim, 2)}
        )
        self.steps, self.read = steps, read

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = rows[:, -self.read :]
        x = self.action(rows[..., 0].long()) + self.values(rows[..., 1:]) + self.rank.weight
        for layer in self.layers:
            x = layer(x)
        last = self.norm(x[:, -1])
        return self.heads["action"](last), self.heads["time"](last), self.heads["place"](last)

    def loss(self, rows: Tensor, wanted: Tensor) -> Tensor:
        action, time_, place = self(rows)
        step = (wanted[:, 1] * self.steps).long().clamp(max=self.steps - 1)
        return (
            functional.cross_entropy(action, wanted[:, 0].long())
            + functional.cross_entropy(time_, step)
            + functional.l1_loss(place, wanted[:, 2:])
        )

    def predict(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest class (n,), and the median of the time (n,), scaled."""
        action, time_, _ = self(rows)
        below = time_.softmax(-1).cumsum(-1)
        return action.argmax(-1), ((below < 0.5).sum(-1).float() + 0.5) / self.steps


def train_ours(train: tuple[Tensor, Tensor], seconds: float, batch: int = 128) -> Ours:
    torch.manual_seed(0)
    model = Ours()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    began, share = time.process_time(), 0.0
    while share < 1:
        share = min((time.process_time() - began) / seconds, 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(share / 0.05, 1.0) * (1 - share)
        chosen = torch.randint(0, len(train[0]), (batch,))
        optimiser.zero_grad()
        model.loss(train[0][chosen], train[1][chosen]).backward()
        optimiser.step()
    return model.eval()


def train_peer(name: str, train: tuple[Tensor, Tensor], seconds: float, batch: int = 256) -> Callable[[Tensor], Any]:
    """Train a network of OpenSTARLab with its own cost function and Adam, as its trainer does."""
    torch.manual_seed(0)
    network = getattr(importlib.import_module(f"event.sports.soccer.models.{name}"), name)
    cost = importlib.import_module("event.sports.soccer.utils.UEID_cost_function").cost_function
    model = network(len(CLASSES), 16, True, len(COLUMNS), 16, 1, 128, *PEERS[name])
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)
    began = time.process_time()
    while time.process_time() - began < seconds:
        chosen = torch.randint(0, len(train[0]), (batch,))
        optimiser.zero_grad()
        loss, _ = cost(train[1][chosen], model(train[0][chosen]), device="cpu", config={"num_actions": len(CLASSES)})
        loss.backward()
        optimiser.step()
    model.eval()

    def predict(rows: Tensor) -> tuple[Tensor, Tensor]:
        out = model(rows)
        return out[:, : len(CLASSES)].argmax(-1), out[:, len(CLASSES)]

    return predict


def score(predict: Callable[[Tensor], Any], test: tuple[Tensor, Tensor], scale: Any) -> dict[str, float]:
    """Accuracy, macro F1 over the nine classes, and the mean absolute error of the time in s."""
    with torch.no_grad():
        parts = [predict(test[0][i : i + 2048]) for i in range(0, len(test[0]), 2048)]
    action, when = (torch.cat(column).numpy() for column in zip(*parts, strict=True))
    wanted = test[1][:, 0].long().numpy()
    f1 = []
    for c in range(len(CLASSES)):
        true = float(((action == c) & (wanted == c)).sum())
        f1.append(2 * true / max(float((action == c).sum() + (wanted == c).sum()), 1.0))
    low, high = (float(end[0]) for end in scale)
    seconds = [np.exp(value * (high - low) + low) - FEW for value in (when, test[1][:, 1].numpy())]
    error = float(np.abs(seconds[0] - seconds[1]).mean())
    return {"accuracy": float((action == wanted).mean()), "f1": float(np.mean(f1)), "time": error}


def stand_in(name: str) -> None:
    """Let the peers' modules be imported without a package that only counts operations or draws."""
    if importlib.util.find_spec(name) is None:
        module = ModuleType(name)
        module.profile_macs = lambda *_: 0  # type: ignore[attr-defined]
        sys.modules[name] = module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=60, help="matches of four leagues")
    parser.add_argument("--test", type=int, default=20, help="matches of England")
    parser.add_argument("--seconds", type=float, default=60, help="CPU time of each training")
    parser.add_argument("--peers", type=Path, help="where openstarlab-event is installed")
    parser.add_argument("--data", type=Path, default=TABLE)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    others = lambda found: [m for c, m in found if c != "England"]  # noqa: E731
    rng = np.random.default_rng(0)
    train_rows = read_rows(args.data, lambda found: rng.permutation(others(found))[: args.train].tolist())
    test_rows = read_rows(args.data, lambda found: [m for c, m in found if c == "England"][: args.test])
    scale = scale_of(train_rows)
    train, test = windows(train_rows, scale), windows(test_rows, scale)
    common = int(torch.bincount(train[1][:, 0].long()).argmax())
    median = float(train[1][:, 1].median())
    always = lambda rows: (torch.full((len(rows),), common), torch.full((len(rows),), median))  # noqa: E731
    results = {"majority and median": score(always, test, scale)}
    results["ballcast"] = score(train_ours(train, args.seconds).predict, test, scale)
    if args.peers is not None:
        sys.path.append(str(args.peers))
        for name in ("torchprofile", "matplotsoccer"):
            stand_in(name)
        for name in PEERS:
            results[name] = score(train_peer(name, train, args.seconds), test, scale)
    print(f"{len(train[0])} rows of {args.train} matches, {len(test[0])} of {args.test} of England")
    print("| | accuracy | F1 | time error, s |\n|---|---|---|---|")
    for name, row in results.items():
        print(f"| {name} | {row['accuracy']:.3f} | {row['f1']:.3f} | {row['time']:.2f} |", flush=True)
    if args.json is not None:
        write_json(args.json, results, indent=1)


if __name__ == "__main__":
    main()

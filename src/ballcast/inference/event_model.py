"""The event transformer, ready to run on tokens in ONNX Runtime or torch, with calibrated probabilities.

A model's folder holds `config.json` (sizes, calibration, where it comes from), `model.safetensors`, and `events.onnx`,
which reads the weights by offset. B samples, C actions, Z zones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError, MissingExtra
from ballcast.core.event_schema import HORIZONS_S, TOKENS, ZONES
from ballcast.core.feed_config import KIND
from ballcast.core.files import read_json
from ballcast.inference.onnx_runtime import open_session

GRAPH = "events.onnx"
INPUTS = ("codes", "values", "told")  # the names in graphs
OUTPUTS = ("intensity", "chance", "zones")
LARGEST = 1e6  # of the numbers of a calibration, which are near 1 and 0
Floats = NDArray[np.float32]
Run = Callable[[NDArray[np.int64], Floats, Floats], tuple[Floats, Floats, Floats]]


@dataclass(frozen=True)
class EventOutputs:
    """`intensity` (B, 2, C, 32) expected actions by team and bin; `chance` (B, 3, C, 5) probabilities within 1 … 5 s by
    each team and by either; `zones` (B, 12, 8) of the next action. Team 0 is that of the last event."""

    intensity: Floats
    chance: Floats
    zones: Floats


@dataclass(frozen=True)
class EventModel:
    """A loaded model.

    - `name`: as in results. `device`: "onnx", or torch's.
    - `calibration` (2, C, 5): slope and shift of the log-odds of `chance`, fitted on validation matches.
    - `tokens`, `observed_ms`: how many events it reads, and how far back.
    """

    name: str
    device: str
    network: Run
    calibration: Floats
    tokens: int = TOKENS
    observed_ms: int = 30_000
    about: Mapping[str, Any] = field(default_factory=dict)

    def run(self, codes: NDArray[np.int64], values: Floats, available: NDArray[np.bool_]) -> EventOutputs:
        """Run on tokens; see `data.events.event_tokens`. `available` (B, flags): which details the feed has."""
        intensity, chance, zones = self.network(codes, values, available.astype(np.float32))
        if not all(np.isfinite(numbers).all() for numbers in (intensity, chance, zones)):
            raise InputError(f"{self.name}: gives numbers that are not finite; its weights are damaged, fetch it again")
        return EventOutputs(intensity, calibrated(chance, self.calibration), zones.reshape(-1, *ZONES))


def batches_by_length(
    empty: NDArray[np.bool_], size: int
) -> tuple[list[tuple[NDArray[np.int64], int]], NDArray[np.int64]]:
    """Group rows of tokens by their number, so that each batch runs without most of its padding.

    Args:
        empty: (n, tokens), the padding, which comes first.
        size: of a batch.

    Returns:
        For each batch its rows, and how many of the last tokens to keep: those of its longest row and, since features
        refer to it, the padding before the first. And the order that puts the concatenated results back in place.
    """
    tokens = empty.shape[1]
    there = ~empty
    length = np.where(there.any(1), np.minimum(tokens - there.argmax(1) + 1, tokens), 1)
    order = np.argsort(length, kind="stable")
    rows = [order[begin : begin + size] for begin in range(0, len(order), size)]
    return [(some, int(length[some].max())) for some in rows], np.argsort(order)


def calibrated(chance: Floats, calibration: Floats) -> Floats:
    """Correct the probabilities (B, 3, C, 5) of either team, and those of each team in proportion."""
    either = chance[:, 2].clip(1e-6, 1 - 1e-6)
    odds = calibration[0] * np.log(either / (1 - either)) + calibration[1]
    fixed = 1 / (1 + np.exp(-odds))
    fixed = np.maximum.accumulate(fixed, -1)  # within 2 s is never less likely than within 1 s
    return (chance * (fixed / either)[:, None]).clip(0, 1).astype(np.float32)


def neutral_calibration() -> Floats:
    """The calibration (2, C, 5) that changes nothing."""
    shape = (len(ACTIONS), len(HORIZONS_S))
    return np.stack([np.ones(shape), np.zeros(shape)]).astype(np.float32)


def is_event_model(folder: Path | str, kind: str = KIND) -> bool:
    """Whether a folder holds an event transformer; or, by the `kind` in its config, one on spots."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        return False
    tree = read_json(path, "sizes of the model")
    return isinstance(tree, dict) and tree.get("kind") == kind


def open_event_model(folder: Path, *, torch_device: str = "", threads: int | None = None) -> EventModel:
    """Open a model: in ONNX Runtime, or in torch on `torch_device` if one is named or there is no graph."""
    tree = read_json(folder / "config.json", "sizes of the model")
    network = tree.get("network") if isinstance(tree, dict) else None
    if not isinstance(network, dict) or not all(isinstance(network.get(k), int) for k in ("tokens", "observed_ms")):
        raise InputError(f"{folder / 'config.json'}: has no 'network' with the sizes of the model; fetch it again")
    shape = (2, len(ACTIONS), len(HORIZONS_S))
    try:
        calibration = np.array(tree["calibration"], np.float32).reshape(shape)
    except (KeyError, ValueError, TypeError, OverflowError):
        calibration = np.full(shape, np.nan, np.float32)
    if not (np.abs(calibration) < LARGEST).all():
        raise InputError(f"{folder / 'config.json'}: 'calibration' is not {shape} numbers; fetch it again")
    graph = folder / GRAPH
    if torch_device or not graph.is_file():
        runtime = torch_device or "cpu"
        run = _torch_run(folder, torch_device or "cpu")
    else:
        runtime = "onnx"
        run = _onnx_run(graph, threads)
    about = {key: tree[key] for key in ("trained_on", "attribution", "license") if key in tree}
    return EventModel(folder.name, runtime, run, calibration, network["tokens"], network["observed_ms"], about)


def _onnx_run(graph: Path, threads: int | None) -> Run:
    session = open_session(graph, str(graph), threads)

    def run(codes: NDArray[np.int64], values: Floats, available: Floats) -> tuple[Floats, Floats, Floats]:
        given = dict(zip(INPUTS, (codes, values, available), strict=True))
        intensity, chance, zones = session.run(list(OUTPUTS), given)
        return intensity, chance, zones

    return run


def _torch_run(folder: Path, device: str) -> Run:
    if find_spec("torch") is None:
        raise MissingExtra("torch", "train", f"{folder}: has no {GRAPH}, so it runs in torch only")
    from ballcast.inference.torch_event_model import load_torch

    return load_torch(folder, device)

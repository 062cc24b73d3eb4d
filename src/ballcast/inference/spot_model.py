"""The spot transformer, ready to run on spots in ONNX Runtime or torch, with calibrated probabilities.

A model's folder holds `config.json` (sizes, calibration, knots of the scores, where it comes from),
`model.safetensors`, and `spots.onnx`, which reads the weights by offset. B samples, C actions.
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
from ballcast.core.event_schema import HORIZONS_S, PAD
from ballcast.core.files import read_json
from ballcast.core.spots import ACTION, Spots
from ballcast.data.events.spot_tokens import tokens_before
from ballcast.inference.calibration import apply_calibration
from ballcast.inference.event_model import LARGEST, batches_by_length
from ballcast.inference.onnx_runtime import open_session
from ballcast.model.postprocess import select_hits
from ballcast.model.score_mapping import ClassScoreMapping

GRAPH = "spots.onnx"
INPUTS = ("codes", "values", "details")  # the names in graphs
OUTPUTS = ("intensity", "chance")
BATCH = 128
Floats = NDArray[np.float32]
Run = Callable[[NDArray[np.int64], Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class SpotModel:
    """A loaded model.

    - `name`: as in results. `device`: "onnx", or torch's.
    - `calibration` (2, C, 5): slope and shift of the log-odds of the probabilities, fitted on validation matches.
    - `peaks`: times of each class in a submission. `spread`: how the scores of each class are spread there.
    - `tokens`, `observed_ms`: how many spots it reads, and how far back.
    """

    name: str
    device: str
    network: Run
    calibration: Floats
    peaks: int
    spread: tuple[ClassScoreMapping, ...]
    tokens: int
    observed_ms: int
    about: Mapping[str, Any] = field(default_factory=dict)

    def run(self, spots: Spots, at_ms: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Forecast from the spots before each time (S,).

        Returns:
            Intensity (S, C, 32): the actions expected in each of the scorer's bins after T. Chance (S, C, 5): the
            probability of at least one within 1, 2, … 5 s. Both are 0 for classes that the spotter does not have.
        """
        flags = np.broadcast_to(spots.flags, (len(at_ms), len(spots.flags)))
        codes, values = tokens_before(spots, at_ms, flags, tokens=self.tokens, observed_ms=self.observed_ms)
        details = flags.astype(np.float32)
        batches, back = batches_by_length(codes[..., ACTION] == PAD, BATCH)
        parts = [self.network(codes[some, -kept:], values[some, -kept:], details[some]) for some, kept in batches]
        if not parts:
            shape = (0, len(ACTIONS))
            return np.zeros((*shape, 32), np.float32), np.zeros((*shape, len(HORIZONS_S)), np.float32)
        intensity, chance = (np.concatenate(column)[back] for column in zip(*parts, strict=True))
        if not (np.isfinite(intensity).all() and np.isfinite(chance).all()):
            raise InputError(f"{self.name}: gives numbers that are not finite; its weights are damaged, fetch it again")
        reported = spots.forecast[:, None]
        # Within 2 s is never less likely than within 1 s.
        chance = np.maximum.accumulate(apply_calibration(chance, self.calibration), -1)
        return intensity * reported, (chance * reported).astype(np.float32)

    def scores(self, intensity: Floats) -> Floats:
        """Scores of a submission (S, 32, C) from the intensity (S, C, 32): times chosen, and scores spread, for mAP."""
        found = select_hits(np.ascontiguousarray(intensity.transpose(1, 0, 2)), self.peaks)
        return np.stack([curve.spread(found[..., c]) for c, curve in enumerate(self.spread)], -1)


def open_spot_model(folder: Path, *, torch_device: str = "", threads: int | None = None) -> SpotModel:
    """Open a model: in ONNX Runtime, or in torch on `torch_device` if one is named or there is no graph."""
    path = folder / "config.json"
    tree = read_json(path, "sizes of the model")
    try:
        network = tree["network"]
        tokens, observed_ms, peaks = int(network["tokens"]), int(network["observed_ms"]), int(tree["peaks"])
        calibration = np.array(tree["calibration"], np.float32).reshape(2, len(ACTIONS), len(HORIZONS_S))
        spread = tuple(ClassScoreMapping(knots=tuple(map(float, knots))) for knots in tree["knots"])
        whole = (np.abs(calibration) < LARGEST).all() and len(spread) == len(ACTIONS) and peaks > 0
    except (KeyError, ValueError, TypeError, OverflowError, InputError):
        whole = False
    if not whole:
        raise InputError(f"{path}: its network, calibration, peaks or knots are damaged; fetch the model again")
    graph = folder / GRAPH
    if torch_device or not graph.is_file():
        device = torch_device or "cpu"
        run = _torch_run(folder, torch_device or "cpu")
    else:
        device = "onnx"
        run = _onnx_run(graph, threads)
    about = {key: tree[key] for key in ("trained_on", "attribution", "license") if key in tree}
    return SpotModel(folder.name, device, run, calibration, peaks, spread, tokens, observed_ms, about)


def _onnx_run(graph: Path, threads: int | None) -> Run:
    session = open_session(graph, str(graph), threads)

    def run(codes: NDArray[np.int64], values: Floats, details: Floats) -> tuple[Floats, Floats]:
        given = dict(zip(INPUTS, (codes, values, details), strict=True))
        intensity, chance = session.run(list(OUTPUTS), given)
        return intensity, chance

    return run


def _torch_run(folder: Path, device: str) -> Run:
    if find_spec("torch") is None:
        raise MissingExtra("torch", "train", f"{folder}: has no {GRAPH}, so it runs in torch only")
    from ballcast.inference.torch_event_model import load_torch_spots

    return load_torch_spots(folder, device)

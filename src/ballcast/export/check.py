"""Compare an export with torch on real frames and windows, before it is written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ballcast.core.errors import BallcastError, InputError
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.stack_index import (
    covering_windows,
    snippet_count,
    snippet_stacks,
    stack_count,
    stack_frames,
    start_frame,
)
from ballcast.inference.runtime import Floats
from ballcast.model.anticipator import Anticipator

LIMIT = 1e-4  # largest difference from torch, as a fraction of the largest value
WINDOWS = 20  # windows and samples compared
THOROUGH = 200  # with --thorough
MAPS = 16  # stacks whose maps are compared; the features depend on all of them

Run = Callable[..., list[NDArray[Any]]]  # a part's name and its inputs → its outputs


class ExportMismatch(BallcastError):
    """An export differs from torch; it is not written."""


@dataclass(frozen=True)
class Reference:
    """Real inputs, and torch's outputs for them.

    - `frames` (T, H, W) uint8, or I420, padded; `maps` of the first stacks; `features` (n, D) of all snippets.
    - `windows` (S, N, D), `tokens` (S, N, d); `samples` (R, W): the windows of each sample; `present` (R, W).
    - `outputs`: objectness, classes, offsets of each sample.
    """

    frames: NDArray[np.uint8]
    maps: Floats
    features: Floats
    windows: Floats
    tokens: Floats
    samples: NDArray[np.int64]
    present: NDArray[np.bool_]
    outputs: dict[str, Floats]


@torch.inference_mode()
def make_reference(
    model: Anticipator, backbone: Backbone, frames: NDArray[np.uint8], windows_compared: int = WINDOWS
) -> Reference:
    """Compute torch's outputs for a real video.

    Windows are spread over the video, and each is the last of a sample with earlier windows, as far as there are any.

    Args:
        model: the anticipator.
        backbone: its backbone.
        frames: (T, H, W) uint8, or I420, of at least 7 s.
        windows_compared: number of windows, at most.
    """
    c = backbone.config
    m = model.config
    lookback = model.network.lookback
    if snippet_count(c, len(frames)) <= m.clips:
        raise InputError(f"{len(frames)} frames are too few to check an export on; give a video of at least 7 s")
    encoder = BatchEncoder(backbone, device="cpu", compiled=False)
    features, padded = encoder.snippets(frames), encoder.load(frames)
    first = min(MAPS, stack_count(c, len(features))) if c.shift == "none" else encoder.stacks_per_batch
    maps = encoder.maps(padded, start_frame(c, torch.arange(first)))[:MAPS]
    count = len(features) - m.clips + 1
    chosen = np.unique(np.linspace(0, count - 1, min(windows_compared, count)).astype(np.int64))
    windows = torch.stack([features[i : i + m.clips] for i in chosen])
    tokens = model.encode_window(windows)
    apart = max(1, len(chosen) // (lookback + 1))  # so that most samples have all windows, and the first lack some
    samples = np.arange(len(chosen))[:, None] - apart * np.arange(lookback - 1, -1, -1)  # (R, W)
    present = samples >= 0
    samples = samples.clip(0)
    slots = model.anticipate(tokens[torch.from_numpy(samples)], torch.from_numpy(present))
    arrays = slots.arrays()
    outputs = {"objectness": arrays.objectness, "classes": arrays.classes, "offsets": arrays.offsets}
    return Reference(
        padded.numpy(), maps.numpy(), features.numpy(), windows.numpy(), tokens.numpy(), samples, present, outputs
    )


def differences(run: Run, reference: Reference, backbone: Backbone) -> dict[str, float]:
    """Run an export on the reference's inputs and compare it with torch.

    Each output is computed from the export's own earlier parts: features from its maps, slots from its tokens.

    Args:
        run: runs a part of the export.
        reference: inputs and torch's outputs.
        backbone: has the sizes of snippets and stacks.

    Returns:
        Output → the largest difference, as a fraction of the largest value.
    """
    c = backbone.config
    r = reference
    count = len(r.features)
    frames, stacks = stack_frames(c, stack_count(c, count)), snippet_stacks(c, count)  # (S, stack), (n, J)
    if c.shift == "none":
        maps = np.concatenate([run("stacks", r.frames[None, stack])[0] for stack in frames])
    else:
        maps = np.concatenate([np.empty_like(r.maps[:1])] * count)
        for first in covering_windows(c, count):  # as `BatchEncoder.snippets` does
            rows = slice(first, first + snippet_count(c))
            maps[rows] = run("stacks", r.frames[frames[rows]])[0]
    features = np.concatenate([run("clips", maps[None, snippet])[0] for snippet in stacks])
    tokens = run("window", r.windows)[0]
    outputs = run("slots", tokens[r.samples], r.present)
    pairs = {
        "maps": (maps[: len(r.maps)], r.maps),
        "features": (features, r.features),
        "tokens": (tokens, r.tokens),
        **{name: (got, r.outputs[name]) for name, got in zip(r.outputs, outputs, strict=True)},
    }
    return {name: _apart(got, expected) for name, (got, expected) in pairs.items()}


@torch.inference_mode()
def model_differences(run: Run, model: Anticipator, samples: int = WINDOWS) -> dict[str, float]:
    """Compare the parts of a model without a backbone with torch, on random features between 0 and 1.

    Args:
        run: runs a part of the export.
        model: in torch.
        samples: number of samples, every second one without its early windows.

    Returns:
        As in `differences`.
    """
    m = model.config
    lookback = model.network.lookback
    rng = np.random.default_rng(0)
    features = rng.random((samples, lookback, m.clips, m.width), np.float32)
    present = np.ones((samples, lookback), np.bool_)
    present[::2, : lookback - 1] = False
    expected = model.encode_window(torch.from_numpy(features))
    arrays = model.anticipate(expected, torch.from_numpy(present)).arrays()
    tokens = run("window", features.reshape(-1, *features.shape[2:]))[0].reshape(expected.shape)
    objectness, classes, offsets = run("slots", tokens, present)
    return {
        "tokens": _apart(tokens, expected.numpy()),
        "objectness": _apart(objectness, arrays.objectness),
        "classes": _apart(classes, arrays.classes),
        "offsets": _apart(offsets, arrays.offsets),
    }


def _apart(got: Floats, expected: Floats) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def require_agreement(found: dict[str, float], what: str) -> None:
    """Raise `ExportMismatch` unless every difference is within `LIMIT`; NaN is not."""
    for name, apart in found.items():
        if not apart <= LIMIT:
            raise ExportMismatch(
                f"{what}: was not written, since the exported {name} differ from torch's by {apart:.1e} of their "
                f"largest, more than {LIMIT:.0e}; report this with the model"
            )

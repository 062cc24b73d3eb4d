"""CPU time of checksums as a share of the work they protect: saving and loading a state, a store's features.

python -m benchmarks.checksums
"""

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ballcast.core.anticipator_config import ModelConfig
from ballcast.core.checks import add_safetensors_checksum, verify_checksum
from ballcast.features.backbone import Backbone
from ballcast.model.anticipator import Anticipator
from ballcast.training.checkpoint import Progress, load_state, save_state


def cpu(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of CPU time in all threads, the least of a few."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    torch.manual_seed(0)
    block = np.random.default_rng(0).standard_normal((64, 6, 33, 1280)).astype(np.float16)  # a shard
    hashed = cpu(lambda: hashlib.sha256(block.data).hexdigest())
    print(f"SHA-256: {block.nbytes / hashed / 1e9:.2f} GB a second")
    frames = torch.zeros(1, 15, 224, 398, dtype=torch.uint8)
    backbone = Backbone().eval()
    with torch.inference_mode():
        clip = cpu(lambda: backbone.features(frames), 3)  # a snippet: one of the 33 of a window
    share = hashed / (64 * 6) / (33 * clip / 5)  # neighbours share four of five stacks
    print(f"a window's features: network at least {33 * clip / 5:.2f} s, checksum {100 * share:.3f} % of it")
    model = Anticipator(ModelConfig())
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(16, 6, 33, 1280)
    step = cpu(lambda: _step(model, optimizer, batch), 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        written = cpu(lambda: save_state(path, model, optimizer, Progress()))
        read = cpu(lambda: load_state(path, model, optimizer))
        raw = path.read_bytes()
    signed, checked = cpu(lambda: add_safetensors_checksum(raw)), cpu(lambda: verify_checksum(raw, path))
    print(f"state of {len(raw) / 1e6:.0f} MB: written in {written:.3f} s, of which checksum {signed:.3f} s")
    print(f"state: read in {read:.3f} s, of which checksum {checked:.3f} s")
    features = hashed / 64 * 16
    print(f"a training step of 16 clips: {step:.2f} s; checksum of their features {100 * features / step:.2f} % of it")
    print(f"an epoch of 100 such steps: checksum of its state {100 * signed / (100 * step):.3f} %")


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    slots = model(batch)
    sum(part.float().square().mean() for part in vars(slots).values() if isinstance(part, torch.Tensor)).backward()  # type: ignore[union-attr]
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""Batches of streams: compiled once for all sizes, with the same features."""

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from ballcast.core.errors import BallcastWarning
from ballcast.features.backbone import Backbone, BackboneConfig
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.inference import torch_stacks
from ballcast.inference.torch_stacks import StackBatch
from tests import graphs

FRAME = (32, 64)
SMALL = BackboneConfig(encoder="test_efficientnet", channels=8, blocks=1, projected=4, se_ratio=2, expansion=2)
ENCODER = BackboneConfig(encoder="test_efficientnet", frames=3, step=1, stride=2, blocks=0, projected=4)


def engine(config: BackboneConfig = SMALL) -> BatchEncoder:
    torch.manual_seed(0)
    return BatchEncoder(Backbone(config).eval(), compiled=False)


def features(batch: StackBatch, counts: list[int], frame: tuple[int, int] = FRAME) -> list[np.ndarray]:
    """Of batches of so many streams, each stack new."""
    random = np.random.default_rng(0)
    streams = [batch.open() for _ in range(max(counts))]
    made = []
    for count in counts:
        for stream in streams[:count]:
            stream.fill(random.integers(0, 256, (batch.encoder.config.stack, *frame), dtype=np.uint8))
        made.append(batch.run(streams[:count]))
    return made


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Graphs are counted, and run as they are: inductor's C++ takes too long for a test."""
    torch._dynamo.reset()
    counting, compiled = CompileCounterWithBackend("aot_eager"), torch.compile
    counting.runs = 0  # type: ignore[attr-defined]

    def backend(graph: Any, inputs: Any) -> Any:
        made = counting(graph, inputs)

        def run(*given: Any) -> Any:
            counting.runs += 1  # type: ignore[attr-defined]
            return made(*given)

        return run

    monkeypatch.setattr(torch, "compile", lambda function: compiled(function, backend=backend))
    return counting


@pytest.mark.filterwarnings("error::ballcast.core.errors.BallcastWarning")
@pytest.mark.parametrize("config", [SMALL, ENCODER], ids=["blocks", "frame encoder"])
@pytest.mark.parametrize("graphed", [False, True])
def test_compiled_once_for_all_sizes(
    config: BackboneConfig, graphed: bool, counter: CompileCounterWithBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_stacks, "record", graphs.record)
    counts = [1, 2, 5, 3, 8, 4, 1, 7]
    expected = features(StackBatch(engine(config), FRAME, streams=8, graphed=False), counts)
    batch = StackBatch(engine(config), FRAME, streams=8, graphed=graphed, compiled=True)
    counter.runs = 0  # type: ignore[attr-defined]
    got = features(batch, counts)
    assert counter.runs >= 2 * 4  # type: ignore[attr-defined] # at least of the batches of 4 and more
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max()
    assert counter.frame_count == 2  # encode and mix
    assert ("record 4" in batch.took) == graphed
    assert ("record 2" in batch.took) == graphed
    assert "record 1" not in batch.took  # one is filled up to two
    other = features(StackBatch(engine(config), (64, 32), streams=4, graphed=False, compiled=True), [4, 2, 3], (64, 32))
    assert [len(rows) for rows in other] == [4, 2, 3]
    assert counter.frame_count == 4  # and not again for frames of any size


def test_without_a_compiler_it_warns_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C compiler was found")

    torch._dynamo.reset()
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function: compiled(function, backend=failing))
    with pytest.warns(BallcastWarning, match="without compiling") as caught:
        batch = StackBatch(engine(), FRAME, streams=4, graphed=False, compiled=True)
    assert len([w for w in caught if issubclass(w.category, BallcastWarning)]) == 1
    expected = features(StackBatch(engine(), FRAME, streams=4, graphed=False), [4, 2])
    for a, b in zip(features(batch, [4, 2]), expected, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("config", [SMALL, ENCODER], ids=["blocks", "frame encoder"])
def test_compiled_and_recorded_on_a_gpu(config: BackboneConfig) -> None:
    torch._dynamo.reset()
    counts = [1, 2, 5, 3, 8, 4, 1, 7]
    expected = features(StackBatch(engine(config), FRAME, streams=8, graphed=False), counts)
    on_gpu = BatchEncoder(engine(config).backbone, device="cuda", compiled=False)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    got = features(StackBatch(on_gpu, FRAME, streams=8, graphed=True, compiled=True), counts)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2
    for a, b in zip(got, expected, strict=True):
        assert np.abs(a - b).max() <= 2e-2 * np.abs(b).max()

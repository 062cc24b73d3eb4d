"""benchmarks/streams.py with several processes: they begin to measure together, and their figures are put together."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import streams


def part(latencies: list[float], **changed: Any) -> dict[str, Any]:
    counts = {"forecasts": len(latencies), "expected": 4, "frames_lost": 0, "waiting": 0, "slow": 0, "held": True}
    used = {"late_ms": 0, "cores_used": 1.25, "machine_load": 2.0, "ready_s": 8.0, "errors": [], "gpu_percent": 40.0}
    return {**counts, **used, "threads_busy": 0.5, "steps_a_batch": 1.0, "latencies_ms": latencies, **changed}


def test_figures_of_processes_are_put_together() -> None:
    one = part([10.0, 20.0, 30.0, 40.0], gpu_percent=41.0)
    two = part(
        [100.0, 200.0], held=False, waiting=1, slow=2, frames_lost=7, late_ms=90, steps_a_batch=3.0, errors=["a"]
    )
    both = streams.summary(streams.merged([one, two]))
    assert [both[key] for key in ("forecasts", "expected", "frames_lost", "waiting", "slow")] == [6, 8, 7, 1, 2]
    assert [both[key] for key in ("cores_used", "threads_busy", "steps_a_batch", "late_ms")] == [2.5, 1.0, 2.0, 90]
    assert (both["held"], both["errors"], both["gpu_percent"]) == (False, ["a"], 41.0)
    expected = np.percentile([10, 20, 30, 40, 100, 200], [50, 95, 99]).round(1).tolist()  # not a mean of percentiles
    assert [both["p50"], both["p95"], both["p99"]] == expected
    assert "latencies_ms" not in both
    assert "p50" not in streams.summary(streams.merged([part([]), part([])]))


def test_processes_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = threading.Thread(target=streams._meet, args=(tmp_path, 0, 2, "running"), daemon=True)
    first.start()
    streams._meet(tmp_path, 1, 1, "loaded")  # another place
    time.sleep(0.2)
    assert first.is_alive()
    streams._meet(tmp_path, 1, 2, "running")
    first.join(5)
    assert not first.is_alive()
    monkeypatch.setattr(streams, "LOAD_S", 0.1)
    with pytest.raises(TimeoutError, match="the other processes were not running"):
        streams._meet(tmp_path, 0, 3, "running")

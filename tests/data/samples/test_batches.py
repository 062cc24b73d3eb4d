"""Where data go: as asked for, or to the nearest place with room."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from ballcast.core.anticipator_config import DataConfig
from ballcast.core.errors import InputError
from ballcast.core.util import available_memory
from ballcast.data.samples import batches
from ballcast.data.samples.batches import Plan, Samples, place, plan_epoch
from ballcast.data.samples.windows import ABSENT, WindowSet

CPU = torch.device("cpu")


def test_what_is_asked_for_is_done_or_refused() -> None:
    assert place(1, CPU, "disk") == "disk"
    assert place(1 << 60, CPU, "memory") == "memory"
    with pytest.raises(
        InputError, match=r"^data.device=gpu needs a GPU, and torch sees none; use data.device=auto$"
    ):  # of features and of frames alike
        place(1, CPU, "gpu")


def test_the_nearest_place_with_room() -> None:
    assert place(1, CPU) == "memory"
    assert place(1 << 60, CPU) == "disk"


def test_half_of_the_free_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 bytes are free on the GPU and 200 in memory."""
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000) if device == gpu else (0, 0))
    monkeypatch.setattr(batches, "available_memory", lambda: 200)
    assert [place(n, gpu) for n in (49, 50, 99, 100)] == ["gpu", "memory", "memory", "disk"]
    assert [place(n, CPU) for n in (49, 99, 100)] == ["memory", "memory", "disk"]
    assert place(10**9, gpu, "gpu") == "gpu"


@pytest.mark.parametrize(
    ("own", "folder", "names"),
    [
        ("0::/jobs/mine", "jobs", ("memory.max", "memory.current", "inactive_file")),
        (
            "7:cpu:/x\n4:memory,blkio:/jobs/mine",
            "memory/jobs",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_memory_is_what_the_machine_and_the_container_leave(
    tmp_path: Path, own: str, folder: str, names: tuple[str, str, str]
) -> None:
    """A limit of any cgroup above the process counts; file caches, which the kernel can drop, do not."""
    whole = available_memory(tmp_path, tmp_path / "none")
    assert 0 < whole <= psutil.virtual_memory().total
    (tmp_path / "cgroup").write_text(own + "\n")
    group = tmp_path / folder
    (group / "mine").mkdir(parents=True)
    for at, limit in ((group, "9000000"), (group / "mine", "max")):
        (at / names[0]).write_text(limit + "\n")
        (at / names[1]).write_text("5000000\n")
        (at / "memory.stat").write_text(f"anon 1\n{names[2]} 1000000\n")
    assert available_memory(tmp_path, tmp_path / "cgroup") == 5_000_000
    (group / names[0]).write_text("1000000\n")
    assert available_memory(tmp_path, tmp_path / "cgroup") == 0


def five(mirrored: tuple[int, ...] = ()) -> WindowSet:
    """Five samples of two windows, 3 tokens, 2 features; row r holds r everywhere. Sample 3 has no first window."""
    rows = np.arange(6, dtype=np.float16)[:, None, None].repeat(3, 1).repeat(2, 2)
    index = np.array([[0, 1], [1, 2], [2, 3], [ABSENT, 4], [4, 5]])
    classes = np.full((5, 8), -1)
    classes[:, 0] = [0, 1, 1, 9, 0]
    classes[2, 1] = 9
    position_ms = np.full((5, 8), 30_000) + np.arange(5)[:, None]
    presence = np.zeros((5, 3, 10), np.uint8)
    presence[:, 0, 0] = range(5)
    return WindowSet([rows], index, classes, position_ms, presence, list("abcde"), [], mirrored=mirrored)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_every_sample_is_run_once_in_order(where: Any) -> None:
    samples = Samples(five(), CPU, where)
    assert (samples.where, samples.nbytes) == (where, 6 * 3 * 2 * 2)  # six rows of 3 × 2 numbers of two bytes
    seen = samples.run(lambda features, present: (features[:, 1, 0, 0].tolist(), present.tolist()), batch=2)
    assert [s[0] for s in seen] == [[1.0, 2.0], [3.0, 4.0], [5.0]]
    assert seen[1][1] == [[True, True], [False, True]]
    own = samples.run(lambda features, present: features[:, 1, 0, 0].tolist(), rank=1, ranks=2)
    assert own == [[2.0, 4.0]]  # all in one batch, unless told
    assert list(samples.stream([])) == []


def test_a_batch_is_overwritten_in_place() -> None:
    samples = Samples(five(), CPU, "memory")
    first, second = samples.take(torch.tensor([0, 1])), samples.take(torch.tensor([3, 4]))
    kept = first.tensors()
    first.copy_(second)
    for mine, theirs, before in zip(first.tensors(), second.tensors(), kept, strict=True):
        assert torch.equal(mine, theirs)
        assert mine is before


def test_what_a_batch_holds() -> None:
    batch = Samples(five(), CPU, "memory").take(torch.tensor([2, 3]))
    assert batch.features.shape == (2, 2, 3, 2)
    assert batch.features[0, :, 0, 0].tolist() == [2.0, 3.0]
    assert batch.present.tolist() == [[True, True], [False, True]]
    assert batch.classes[:, :2].tolist() == [[1, 9], [9, -1]]
    assert batch.position_ms[:, 0].tolist() == [30_002, 30_003]
    assert batch.presence[:, 0, 0].tolist() == [2, 3]


def test_the_events_of_all_samples_are_counted() -> None:
    none = replace(five(), classes=np.full((5, 8), -1))
    assert none.class_counts().tolist() == [0] * 10
    assert five().class_counts().tolist() == [2, 2, 0, 0, 0, 0, 0, 0, 0, 2]


def test_a_part_of_every_batch() -> None:
    first = np.arange(12).reshape(2, 6)
    plan = Plan(first, first + 100, first / 100, first + 200, mixed=True)
    part = plan.slice(1, 3)
    assert part.first.tolist() == [[2, 3], [8, 9]]
    assert part.second.tolist() == [[102, 103], [108, 109]]
    assert part.share.tolist() == [[0.02, 0.03], [0.08, 0.09]]
    assert part.absent.tolist() == [[202, 203], [208, 209]]
    assert part.mixed


def test_the_only_window_is_never_dropped() -> None:
    """Of one window none can be dropped, of two the first only; an epoch smaller than a batch repeats its samples."""
    classes = np.full((3, 8), -1)
    config = DataConfig(boost={}, mixup=0.0, drop_windows=1.0)
    one = plan_epoch(classes, config, batch=4, windows=1, seed=0, epoch=0)
    assert one.absent.tolist() == [[0, 0, 0, 0]]
    assert (one.absent.dtype, one.share.dtype) == (np.int64, np.float32)
    assert sorted(one.first[0, :3].tolist()) == [0, 1, 2]
    assert one.first.shape == (1, 4)
    assert one.share.tolist() == [[1, 1, 1, 1]]
    assert plan_epoch(classes, config, batch=4, windows=2, seed=0, epoch=0).absent.tolist() == [[1, 1, 1, 1]]


def test_only_rows_that_are_used_are_kept() -> None:
    """Samples 2 and 4 use rows 2 to 5 of six, which are 0 to 3 of those in memory."""
    some = replace(five(), index=np.array([[2, 3], [4, 5]]))
    samples = Samples(some, CPU, "memory")
    assert samples.nbytes == 4 * 3 * 2 * 2
    assert samples.take(torch.tensor([1, 0])).features[:, :, 0, 0].tolist() == [[4.0, 5.0], [2.0, 3.0]]


def test_without_boosts_the_order_is_drawn_again_for_every_round() -> None:
    """An epoch of fewer samples than a batch is several rounds of all of them."""
    config = DataConfig(boost={}, mixup=0.0)
    order = plan_epoch(np.full((10, 8), -1), config, batch=30, windows=6, seed=0, epoch=0).first.reshape(3, 10)
    assert (np.sort(order) == np.arange(10)).all()
    assert len({tuple(part) for part in [range(10), *order.tolist()]}) == 4


def test_with_boosts_an_epoch_is_at_least_one_batch() -> None:
    plan = plan_epoch(np.full((3, 8), -1), DataConfig(), batch=8, windows=6, seed=0, epoch=0)
    assert plan.first.shape == (1, 8)


def test_windows_are_dropped_from_each_sample_of_a_batch() -> None:
    config = DataConfig(boost={}, drop_windows=0.5)
    plan = plan_epoch(np.full((1000, 8), -1), config, batch=20, windows=6, seed=0, epoch=0)
    dropped = (plan.absent > 0).mean(1)  # of each batch
    assert ((dropped > 0) & (dropped < 1)).all()

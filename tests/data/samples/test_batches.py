"""Where data go: as asked for, or to the nearest place with room."""

from pathlib import Path

import psutil
import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.core.util import available_memory
from ballcast.data.samples.batches import place

CPU = torch.device("cpu")


def test_what_is_asked_for_is_done_or_refused() -> None:
    assert place(1, CPU, "disk") == "disk"
    assert place(1 << 60, CPU, "memory") == "memory"
    with pytest.raises(InputError, match="device=gpu needs a GPU"):  # of features and of frames alike
        place(1, CPU, "gpu")


def test_the_nearest_place_with_room() -> None:
    assert place(1, CPU) == "memory"
    assert place(1 << 60, CPU) == "disk"


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

"""A short run of `python -m benchmarks.kills`; the long one is in docs/robustness.md."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_download_is_killed_finds_the_disk_full_and_is_damaged(tmp_path: Path, small_disk: Path) -> None:
    """small_disk: only where file systems can be mounted."""
    numbers = ["--kills", "4", "--renames", "3", "--enospc", "2", "--flips", "1", "--only", "download"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", *numbers, "--work", str(tmp_path / "work")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "download: 7 kills" in done.stdout
    assert "download: the disk was full 2 times" in done.stdout
    assert "unpacked so far: 1 flips: 0 refused, 1 made again" in done.stdout
    assert "0 faults in all" in done.stdout

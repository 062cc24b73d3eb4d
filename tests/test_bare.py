"""`tools.bare`: what training on films imports, without the packages that it never calls."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_training_on_films_starts_without_packages_it_does_not_call() -> None:
    """As on a machine that has torch, NumPy, timm and little else."""
    program = (
        "import sys, tools.bare as bare\n"
        "sys.meta_path.insert(0, bare.Finder())\n"
        "sys.argv = ['bare', 'tools.train_films', '--help']\n"
        "bare.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--seconds" in done.stdout

"""Which seeds are for training, validation and test."""

from collections.abc import Iterable

from ballcast.core.errors import InputError

TEST_SEEDS = range(7001, 7011)  # never trained on
VALID_SEEDS = range(8001, 8005)
SETS = {  # name of a set: its seeds and its split
    "films-test": (TEST_SEEDS, "test"),
    "films-valid": (VALID_SEEDS, "valid"),
    "films-train": (range(6001, 6301), "train"),
}


def is_training_seed(seed: int) -> bool:
    """Whether the films of a seed may have what only films for training have."""
    return 6001 <= seed <= 6999 or seed >= 10001


def split_of(seed: int) -> str:
    """The split of a seed unless another is asked for."""
    if seed in TEST_SEEDS:
        return "test"
    return "valid" if seed in VALID_SEEDS else "train"


def check_split(seeds: Iterable[int], split: str) -> None:
    """Refuse to put a test seed into another split than test."""
    wrong = [seed for seed in seeds if seed in TEST_SEEDS]
    if split != "test" and wrong:
        raise InputError(
            f"seed {wrong[0]} cannot be in the split {split}: seeds {TEST_SEEDS[0]} to {TEST_SEEDS[-1]} are test "
            "matches; give --split test, or other seeds"
        )

"""Sets of matches: apart from each other, and test matches never in training."""

import pytest

from ballcast.core.errors import InputError
from tools.simulation.seeds import SETS, check_split, is_training_seed, split_of


def test_sets_do_not_overlap_and_have_the_splits_of_their_seeds() -> None:
    seeds = [seed for seeds, _ in SETS.values() for seed in seeds]
    assert len(seeds) == len(set(seeds)) == 10 + 4 + 300
    for seeds_of_set, split in SETS.values():
        assert {split_of(seed) for seed in seeds_of_set} == {split}
        assert all(is_training_seed(seed) == (split == "train") for seed in seeds_of_set)


def test_training_seeds() -> None:
    assert [seed for seed in range(5990, 10010) if is_training_seed(seed)] == [*range(6001, 7000), *range(10001, 10010)]


def test_test_seeds_are_refused_elsewhere() -> None:
    check_split([7001, 7010], "test")
    check_split([7000, 7011, 8001], "train")
    for split in ("train", "valid"):
        with pytest.raises(InputError, match="seed 7010 cannot be in the split"):
            check_split([6001, 7010], split)

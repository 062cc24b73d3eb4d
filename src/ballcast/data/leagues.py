"""The benchmark on five leagues: which matches are trained on, chosen on and tested on, and how often a window ends."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ballcast.core.errors import InputError
from ballcast.data.feed import Feed

Size = Literal["small", "full"]
EVERY_MS = {"train": 7_000, "valid": 11_000, "test": 11_000}  # from one window's end to the next one's
MATCHES = {  # what a right division must give
    "small": {"train": 264, "valid": 36, "test": 60},
    "full": {"train": 1301, "valid": 145, "test": 380},
}
TESTED = "England"


def divide(feeds: Sequence[Feed], size: Size) -> dict[str, list[Feed]]:
    """The matches of each split, in file order for `full`, in the order drawn for `small`.

    Tested on England; trained on the other four leagues, of which every tenth match id, sorted, is for validation.
    `small` draws 300 and 60 of these, always the same.
    """
    by_id = {int(feed.match): feed for feed in feeds}
    tested = np.array([int(f.match) for f in feeds if f.competition == TESTED])
    others = np.array([int(f.match) for f in feeds if f.competition != TESTED])
    validation = np.sort(others)[::10]
    if size == "small":
        rng = np.random.default_rng(0)
        others, tested = rng.permutation(others)[:300], rng.permutation(tested)[:60]
    chosen = np.isin(others, validation)
    splits = {"train": others[~chosen], "valid": others[chosen], "test": tested}
    counts = {name: len(ids) for name, ids in splits.items()}
    if counts != MATCHES[size]:
        raise InputError(f"the table gives {counts} matches, the benchmark has {MATCHES[size]}; is it the whole table?")
    return {name: [by_id[int(i)] for i in ids] for name, ids in splits.items()}

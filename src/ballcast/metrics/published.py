"""Scores others have published on SN-BAA, in per cent, to stand beside ours."""

from typing import NamedTuple


class Published(NamedTuple):
    """A row of somebody's table: mAP at 1, 2, 3, 4, 5 s and without limit (None: not told), and their mean."""

    name: str
    at: tuple[float, ...] | None
    avg: float


PUBLISHED = (
    Published("the paper, SN-BAA test", (5.6, 13.2, 17.2, 20.6, 22.9, 25.6), 17.9),
    Published("the paper, SN-BAA challenge", (5.5, 12.2, 15.8, 18.6, 20.9, 24.4), 16.5),
    Published("FAANTRA, SN-BAA test server", None, 18.05),
)

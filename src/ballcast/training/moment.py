"""What a run shows while it goes."""

from dataclasses import dataclass
from typing import Protocol


class Scored(Protocol):
    """A score with one number to go by, a fraction."""

    @property
    def avg(self) -> float: ...


@dataclass(frozen=True)
class Moment:
    """How a run stands, after some of its steps."""

    epoch: int  # counted from 0
    step: int  # steps done in this epoch
    steps: int  # steps of an epoch
    rate: float
    losses: dict[str, float]
    samples_per_s: float
    score: Scored | None = None  # after an epoch with validation
    better: bool = False  # than all epochs before
    ended: bool = False  # the epoch is over

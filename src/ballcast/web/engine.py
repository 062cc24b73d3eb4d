"""The one model and backbone of a server, shared by its jobs and streams."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ballcast.inference.rolling import RollingAnticipator
from ballcast.inference.runtime import Runtime


@dataclass(frozen=True)
class Engine:
    """`new()` gives an anticipator with a state of its own, for one video or stream; `about` goes into results."""

    new: Callable[[], RollingAnticipator]
    about: dict[str, Any] = field(default_factory=dict)


def make_engine(new_runtime: Callable[[], Runtime], *, every_ms: int) -> Engine:
    """`new_runtime()` gives a runtime for one video or stream; all of them share their networks."""
    first = new_runtime()
    about = {"every_ms": every_ms, **first.about, "pos_weight": first.pos_weight}
    return Engine(lambda: RollingAnticipator(new_runtime(), every_ms=every_ms), about)

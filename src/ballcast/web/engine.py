"""The one model and backbone of a server, shared by its jobs and streams."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ballcast.features.backbone import Backbone
from ballcast.inference.predictor import check_backbone
from ballcast.inference.rolling import RollingAnticipator
from ballcast.model.anticipator import Anticipator


@dataclass(frozen=True)
class Engine:
    """`new()` gives an anticipator with a state of its own, for one video or stream; `about` goes into results."""

    new: Callable[[], RollingAnticipator]
    about: dict[str, Any] = field(default_factory=dict)


def load_engine(model: str, backbone: str, *, every_ms: int, device: str) -> Engine:
    """From the names of a model and of the backbone it was trained on; `device` is torch's."""
    anticipator, network = Anticipator.from_pretrained(model), Backbone.load(backbone)
    check_backbone(anticipator, network, model, backbone)
    network.to(device)

    def new() -> RollingAnticipator:
        return RollingAnticipator(anticipator, network, every_ms=every_ms, device=device)

    about = {"model": model, "backbone": {"name": network.name, "hash": network.hash}, "pos_weight": new().pos_weight}
    return Engine(new, {"every_ms": every_ms, **about})

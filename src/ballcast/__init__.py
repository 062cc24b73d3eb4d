"""ballcast anticipates football.

    import ballcast

    model = ballcast.load()
    print(model.video("match.mp4").to_frame())

`load` needs no torch. `Anticipator` and `Backbone` are the networks in torch. All are imported when first touched, so
that `import ballcast` and the command line stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballcast.api import Model, load
    from ballcast.features.backbone import Backbone
    from ballcast.inference.forecasts import Forecasts
    from ballcast.model.anticipator import Anticipator

__version__ = "0.2.0"
__all__ = ["Anticipator", "Backbone", "Forecasts", "Model", "__version__", "load"]

_HOMES = {
    "Anticipator": "ballcast.model.anticipator",
    "Backbone": "ballcast.features.backbone",
    "Forecasts": "ballcast.api",
    "Model": "ballcast.api",
    "load": "ballcast.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ballcast' has no attribute {name!r}")

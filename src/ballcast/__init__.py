"""ballcast anticipates football.

    from ballcast import Anticipator, Backbone

The two names load torch when first touched, so that `import ballcast` and the command line stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ballcast.features.backbone import Backbone
    from ballcast.model.anticipator import Anticipator

__version__ = "0.1.0"
__all__ = ["Anticipator", "Backbone", "__version__"]

_HOMES = {"Anticipator": "ballcast.model.anticipator", "Backbone": "ballcast.features.backbone"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ballcast' has no attribute {name!r}")

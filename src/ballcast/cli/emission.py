"""The key=value of `predict` and `live`: how slots become predictions, the model's own way unless it is changed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ballcast.core.errors import InputError

if TYPE_CHECKING:
    from ballcast.core.recipe import EmitConfig


def changed_emission(own: "EmitConfig", overrides: Sequence[str], *, shown: bool) -> "EmitConfig":
    """The model's own way with the user's changes; an InputError for one that would change nothing.

    `shown`: to people, along a video or a feed, where slots speak one by one (see `EmitConfig.shown`).
    """
    from ballcast.core.config import from_dict, parse_overrides, to_dict
    from ballcast.core.recipe import EmitConfig

    tree = parse_overrides([text.removeprefix("emit.") for text in overrides])
    asked = from_dict(EmitConfig, {**to_dict(own), **tree}).of_loss(own.inflation)
    if shown and tree.get("mode") == "expected":
        raise InputError(
            "mode=expected is for submissions (--features); along a video or a feed take mode=slot or class"
        )
    made = asked.shown if shown else asked
    if idle := [f"{key}={tree[key]}" for key in made.unused if key in tree]:
        other = "mode=slot or mode=class" if made.mode == "expected" else "mode=expected (--features)"
        raise InputError(f"{idle[0]} changes nothing with mode={made.mode}; leave it out, or take {other}")
    return made

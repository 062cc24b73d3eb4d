"""How a provider's events become the ten actions: a table of rules per provider, the first that fits decides.

A table is data. Each row names an action and what an event must be called for it; what no row knows is OTHER, shown to
the model but never anticipated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ballcast.core.actions import ACTION_INDEX, ACTIONS

OTHER = len(ACTIONS)  # index of events that are none of the ten actions
LEFT_OUT = -1  # index of records that are no events of the match, such as line-ups
Record = Mapping[str, str | Iterable[str]]  # a provider's event: key → value, or all values of a list such as tags

Duel = Literal["", "ground", "air", "loose"]
_INDEX = {**ACTION_INDEX, "OTHER": OTHER, "LEFT OUT": LEFT_OUT}
DUELS: tuple[Duel, ...] = ("", "ground", "air", "loose")


@dataclass(frozen=True)
class Rule:
    """One row.

    - `action`: one of the ten, "OTHER", or "LEFT OUT".
    - `when`: key → the values that fit; all keys must fit, an empty table fits everything.
    - `until_later`: what may be said of the event until a later one has happened. Needed where `when` reads how the
      event ended; by default the action itself.
    - `duel`: the contest this is one of the two rows of.
    """

    action: str
    when: Mapping[str, tuple[str, ...]]
    until_later: str = ""
    duel: Duel = ""

    def fits(self, record: Record) -> bool:
        for key, wanted in self.when.items():
            value = record.get(key, ())
            if not any(v in wanted for v in ((value,) if isinstance(value, str) else value)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an event is, as numbers: its action, what is known of it until a later event, its kind of duel (0: none)."""

    action: int
    known: int
    duel: int


def apply(rules: Iterable[Rule], record: Record) -> Meaning:
    """What the first rule that fits says of the record."""
    for rule in rules:
        if rule.fits(record):
            action = _INDEX[rule.action]
            return Meaning(action, _INDEX[rule.until_later] if rule.until_later else action, DUELS.index(rule.duel))
    return Meaning(OTHER, OTHER, 0)

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
Wanted = Mapping[str, tuple[str, ...]]  # key → the values that fit; all keys must fit, an empty table fits everything

Duel = Literal["", "ground", "air", "loose"]
_INDEX = {**ACTION_INDEX, "OTHER": OTHER, "LEFT OUT": LEFT_OUT}
DUELS: tuple[Duel, ...] = ("", "ground", "air", "loose")


# What an event is beyond its action, as far as providers agree: what starts and stops the game, and who has the ball in
# hand or at stake. Never how it ended. 0: nothing of these.
KINDS = (
    "",
    "free kick",
    "goal kick",
    "corner",
    "penalty",
    "foul",
    "offside",
    "save",
    "keeper out",
    "clearance",
    "interception",
    "air duel",
    "attacking duel",
    "defending duel",
    "loose ball",
    "acceleration",
    "through ball",
    "launch",
    "hand pass",
    "whistle",
)


def fits(when: Wanted, record: Record) -> bool:
    """Whether the record has one of the wanted values for every key."""
    for key, wanted in when.items():
        value = record.get(key, ())
        if not any(v in wanted for v in ((value,) if isinstance(value, str) else value)):
            return False
    return True


@dataclass(frozen=True)
class Rule:
    """One row.

    - `action`: one of the ten, "OTHER", or "LEFT OUT".
    - `when`: what the record must be.
    - `until_later`: what may be said of the event until a later one has happened. Needed where `when` reads how the
      event ended; by default the action itself.
    - `duel`: the contest this is one of the two rows of.
    """

    action: str
    when: Wanted
    until_later: str = ""
    duel: Duel = ""

    def fits(self, record: Record) -> bool:
        return fits(self.when, record)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an event is, as numbers: its action, what is known of it until a later event, its duel (0: none), its kind.

    `outcome`: 1 accurate or won, −1 not, 0 not told.
    """

    action: int
    known: int
    duel: int
    kind: int = 0
    outcome: int = 0


def apply(rules: Iterable[Rule], record: Record) -> Meaning:
    """What the first rule that fits says of the record."""
    for rule in rules:
        if rule.fits(record):
            action = _INDEX[rule.action]
            return Meaning(action, _INDEX[rule.until_later] if rule.until_later else action, DUELS.index(rule.duel))
    return Meaning(OTHER, OTHER, 0)

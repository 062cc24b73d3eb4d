"""The kind and outcome of an event, which the rich grid shows beside its action, for providers read with kloppy.

One table per provider: a kind (see `feed.KINDS`) and the values an event must have for it, in the provider's terms or
kloppy's. The first row that fits decides. A kind without a row is one that the provider does not record, or defines
differently.
"""

from ballcast.core.event_schema import KINDS
from ballcast.data.events.feed import Record, Wanted, fits

Kinds = tuple[tuple[str, Wanted], ...]

# kloppy's own types and qualifiers: all that sportec and datafactory have.
KLOPPY: Kinds = (
    ("", {"kloppy": ("BALL_OUT", "CARD")}),  # made of other events, whose kind is not theirs
    ("free kick", {"SetPieceType": ("FREE_KICK", "THROW_IN")}),  # a throw-in is one in version 2 of Wyscout
    ("goal kick", {"SetPieceType": ("GOAL_KICK",)}),
    ("corner", {"SetPieceType": ("CORNER_KICK",)}),
    ("penalty", {"SetPieceType": ("PENALTY",)}),
    ("foul", {"kloppy": ("FOUL_COMMITTED",)}),
)

WYSCOUT_V3: Kinds = (
    *KLOPPY,
    ("offside", {"type.primary": ("offside",)}),
    ("save", {"type.primary": ("shot_against",)}),  # also of goals: an attempt, as in version 2
    ("keeper out", {"type.primary": ("goalkeeper_exit",)}),
    ("clearance", {"type.primary": ("clearance",)}),
    ("interception", {"type.primary": ("interception",)}),
    ("air duel", {"type.secondary": ("aerial_duel",)}),
    ("attacking duel", {"type.secondary": ("offensive_duel", "dribble")}),
    ("defending duel", {"type.secondary": ("defensive_duel",)}),
    ("loose ball", {"type.secondary": ("loose_ball_duel",)}),
    ("acceleration", {"type.primary": ("acceleration",)}),
    ("through ball", {"type.primary": ("pass",), "type.secondary": ("smart_pass", "through_pass")}),
    ("hand pass", {"type.primary": ("pass",), "type.secondary": ("hand_pass",)}),  # kloppy counts throw-ins too
)

STATSBOMB: Kinds = (
    *KLOPPY,
    ("offside", {"type": ("Offside",)}),
    ("save", {"goalkeeper.type": ("Shot Saved", "Goal Conceded", "Save", "Saved to Post", "Shot Saved to Post")}),
    ("save", {"goalkeeper.type": ("Penalty Saved", "Penalty Conceded")}),
    ("keeper out", {"goalkeeper.type": ("Collected", "Keeper Sweeper", "Punch", "Smother")}),
    ("clearance", {"type": ("Clearance",)}),
    ("interception", {"type": ("Interception",)}),
    ("air duel", {"duel.type": ("Aerial Lost",)}),  # an aerial won is recorded with the winner's pass or clearance
    ("attacking duel", {"type": ("Dribble", "Dispossessed")}),
    ("defending duel", {"type": ("Dribbled Past",)}),
    ("defending duel", {"duel.type": ("Tackle",)}),
    ("loose ball", {"type": ("50/50",)}),
    ("through ball", {"PassType": ("THROUGH_BALL",)}),
    ("hand pass", {"PassType": ("HAND_PASS",)}),
)

_PASSED = {"type": ("1", "2")}
OPTA: Kinds = (
    *KLOPPY,
    ("save", {"GoalkeeperActionType": ("SAVE",)}),
    ("keeper out", {"type": ("11", "41", "54", "59")}),  # claim, punch, smother, sweeper
    ("clearance", {"type": ("12",)}),
    ("interception", {"type": ("8", "74")}),
    ("air duel", {"type": ("44",)}),
    ("attacking duel", {"type": ("3", "50")}),  # take on; dispossessed
    ("defending duel", {"type": ("7", "45")}),  # tackle; challenge
    ("loose ball", {"type": ("67",)}),
    ("through ball", {**_PASSED, "qualifier": ("4",)}),
    ("launch", {**_PASSED, "qualifier": ("157",)}),
    ("hand pass", {**_PASSED, "qualifier": ("123",)}),  # the keeper's throw
)

# kloppy's results; a shot on target is accurate, as Wyscout has it. A carry always succeeds, so it has no outcome.
_RESULTS = {
    **dict.fromkeys(("COMPLETE", "WON", "SUCCESS", "GOAL", "SAVED"), 1),
    **dict.fromkeys(("INCOMPLETE", "LOST", "OUT", "OFFSIDE", "OFF_TARGET", "POST", "BLOCKED"), -1),
}


def kind_of(kinds: Kinds, record: Record) -> int:
    """Return the index in `KINDS` of the first row that fits; 0: none."""
    return KINDS.index(next((kind for kind, when in kinds if fits(when, record)), ""))


def outcome_of(record: Record) -> int:
    """Return the outcome of a record with kloppy's type and result: 1 accurate or won, −1 not, 0 unknown."""
    return 0 if record["kloppy"] == "CARRY" else _RESULTS.get(str(record["result"]), 0)


def missing_kinds(kinds: Kinds) -> tuple[str, ...]:
    """List the kinds that have no row."""
    return tuple(kind for kind in KINDS if kind and kind not in dict(kinds))

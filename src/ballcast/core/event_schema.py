"""What event feeds and the models of them share: kinds of events, columns of a token, details that a feed may lack."""

from ballcast.core.actions import ACTIONS

OTHER = len(ACTIONS)  # index of events that are none of the ten actions
PAD = OTHER + 1  # the action of a token that is not there

# Kinds of events that providers agree on: restarts and stoppages, keeper actions, duels and some passes. A kind never
# depends on how the event ended. 0: none of these.
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

# The columns of a token: whole numbers (codes), and positions and age (values).
ACTION, KIND, OUTCOME, SAME_TEAM, SAME_PLAYER, ENDED, LOCATED = range(7)
X, Y, END_X, END_Y, AGE = range(5)
CODES = 7
VALUES = 5
TOKENS = 24  # the last events before T; 30 s hold more than these in one window of a thousand

# Details that a feed may lack, by name: groups of kinds, properties, and actions with what they are called instead.
GROUPS: dict[str, tuple[str, ...]] = {
    "stoppages": ("offside", "whistle"),
    "keeper": ("save", "keeper out"),
    "defending": ("clearance", "interception"),
    "duels": ("air duel", "attacking duel", "defending duel", "loose ball"),
    "acceleration": ("acceleration",),
    "passes": ("through ball", "launch", "hand pass"),
}
PROPERTIES = ("outcome", "player", "end")
RENAMED = {  # what an action is called in a feed that does not distinguish it; None: the event is missing
    "HEADER": "PASS",
    "HIGH PASS": "PASS",
    "CROSS": "PASS",
    "BALL PLAYER BLOCK": "OTHER",
    "PLAYER SUCCESSFUL TACKLE": "OTHER",
    "DRIVE": None,
    "OUT": None,
}
DETAILS = (*GROUPS, *PROPERTIES, *RENAMED)  # what a feed may have or lack, in order

# What a model of feeds gives beside the scorer's 32 bins.
ZONES = (12, 8)  # of the pitch, along and across
HORIZONS_S = (1, 2, 3, 4, 5)

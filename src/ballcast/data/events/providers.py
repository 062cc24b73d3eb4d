"""How other providers' events map to the ten actions: one table each, in the provider's terms.

Each row is a `Rule`; the first that fits decides, and an event that fits none is OTHER. The choices follow those of
Wyscout's table: a free kick that is simply passed is OTHER, a ball recovered or carried on is DRIVE, and who won a
tackle or an aerial duel is known at its end, so until a later event it is just a duel.
"""

from ballcast.data.events.feed import Rule

# Wyscout version 3: type.primary and type.secondary; other keys are paths into the event.
_DUEL_V3 = {"type.primary": ("duel",)}
WYSCOUT_V3 = (
    Rule("LEFT OUT", {"kloppy": ("FORMATION_CHANGE", "SUBSTITUTION")}),  # kloppy's own additions
    Rule("THROW IN", {"type.primary": ("throw_in",)}),
    Rule("SHOT", {"type.primary": ("shot", "penalty")}),
    Rule("SHOT", {"type.primary": ("free_kick", "corner"), "type.secondary": ("free_kick_shot", "shot")}),
    Rule("CROSS", {"type.primary": ("corner",)}),
    Rule("CROSS", {"type.primary": ("pass", "free_kick"), "type.secondary": ("cross", "free_kick_cross")}),
    Rule("HIGH PASS", {"type.primary": ("goal_kick",)}),
    Rule("HEADER", {"type.primary": ("pass",), "type.secondary": ("head_pass",)}),
    Rule("HIGH PASS", {"type.primary": ("pass",), "pass.height": ("high",)}),
    Rule("PASS", {"type.primary": ("pass",)}),
    Rule("OUT", {"type.primary": ("game_interruption",), "type.secondary": ("ball_out",)}),
    Rule("BALL PLAYER BLOCK", {"type.primary": ("interception",)}),
    Rule(
        "HEADER",
        {**_DUEL_V3, "type.secondary": ("aerial_duel",), "aerialDuel.firstTouch": ("true",)},
        until_later="OTHER",
        duel="air",
    ),
    Rule("OTHER", {**_DUEL_V3, "type.secondary": ("aerial_duel",)}, duel="air"),
    Rule(
        "PLAYER SUCCESSFUL TACKLE",
        {**_DUEL_V3, "type.secondary": ("defensive_duel",), "groundDuel.recoveredPossession": ("true",)},
        until_later="OTHER",
        duel="ground",
    ),
    Rule("OTHER", {**_DUEL_V3, "type.secondary": ("defensive_duel",)}, duel="ground"),
    Rule("DRIVE", {**_DUEL_V3, "type.secondary": ("offensive_duel", "dribble")}, duel="ground"),
    Rule("DRIVE", {**_DUEL_V3, "type.secondary": ("loose_ball_duel",)}, duel="loose"),
    Rule("DRIVE", {"type.primary": ("acceleration", "touch")}),
)

# StatsBomb: the names in its specification; keys are paths into the event.
STATSBOMB = (
    Rule("OUT", {"kloppy": ("BALL_OUT",)}),  # kloppy makes these of passes and shots that went out
    Rule("LEFT OUT", {"kloppy": ("DUEL",), "type": ("Pass", "Shot", "Clearance", "Miscontrol")}),  # aerials won beside
    Rule("LEFT OUT", {"kloppy": ("INTERCEPTION",), "type": ("Pass",)}),  # a first-time pass stays a pass
    Rule("LEFT OUT", {"kloppy": ("CARD",)}),  # the foul or bad behaviour it was shown for is there
    Rule("THROW IN", {"type": ("Pass",), "pass.type": ("Throw-in",)}),
    Rule("CROSS", {"type": ("Pass",), "pass.type": ("Corner",)}),
    Rule("CROSS", {"type": ("Pass",), "pass.cross": ("true",)}),
    Rule("OTHER", {"type": ("Pass",), "pass.type": ("Free Kick",)}),
    Rule("HEADER", {"type": ("Pass",), "pass.body_part": ("Head",)}),
    Rule("HIGH PASS", {"type": ("Pass",), "pass.height": ("High Pass",)}),  # goal kicks too have their height
    Rule("PASS", {"type": ("Pass",)}),
    Rule("SHOT", {"type": ("Shot",)}),
    Rule("DRIVE", {"type": ("Carry", "Dribble")}),
    Rule("BALL PLAYER BLOCK", {"type": ("Block", "Interception")}),
    Rule("HEADER", {"type": ("Clearance",), "clearance.body_part": ("Head",)}),
    Rule(
        "PLAYER SUCCESSFUL TACKLE",
        {
            "type": ("Duel",),
            "duel.type": ("Tackle",),
            "duel.outcome": ("Won", "Success", "Success In Play", "Success Out"),
        },
        until_later="OTHER",
        duel="ground",
    ),
    Rule("OTHER", {"type": ("Duel",), "duel.type": ("Tackle",)}, duel="ground"),
    Rule("OTHER", {"type": ("Dribbled Past", "Dispossessed")}, duel="ground"),  # the other side of a tackle
    Rule("LEFT OUT", {"type": ("Ball Receipt*", "Pressure")}),  # not on the ball, or the end of a pass
    Rule("LEFT OUT", {"type": ("Starting XI", "Half Start", "Half End", "Substitution", "Tactical Shift")}),
    Rule("LEFT OUT", {"type": ("Camera On", "Camera off", "Player On", "Player Off", "Injury Stoppage")}),
)

# Opta and Stats Perform: numbers of types and qualifiers of the F24 and MA3 feeds.
_PASSED = {"type": ("1", "2")}  # pass; pass to a player offside
OPTA = (
    Rule("THROW IN", {**_PASSED, "qualifier": ("107",)}),
    Rule("CROSS", {**_PASSED, "qualifier": ("2", "6")}),  # cross; corner
    Rule("OTHER", {**_PASSED, "qualifier": ("5",)}),  # free kick
    Rule("HEADER", {**_PASSED, "qualifier": ("3",)}),  # head pass
    Rule("HIGH PASS", {**_PASSED, "qualifier": ("1", "155", "157", "124")}),  # long, chipped, launched; goal kick
    Rule("PASS", _PASSED),
    Rule("SHOT", {"type": ("13", "14", "15", "16")}),  # missed, post, saved, goal
    Rule("OUT", {"type": ("5", "6")}),  # out; corner awarded. One row a team, which count once
    Rule("BALL PLAYER BLOCK", {"type": ("8", "74")}),  # interception; blocked pass
    Rule("BALL PLAYER BLOCK", {"type": ("10",), "qualifier": ("94",)}),  # a "save" by a defender
    Rule(
        "PLAYER SUCCESSFUL TACKLE",
        {"type": ("7",), "outcome": ("1",)},
        until_later="OTHER",
        duel="ground",
    ),
    Rule("OTHER", {"type": ("7", "45", "50")}, duel="ground"),  # tackle without the ball; challenge; dispossessed
    Rule("DRIVE", {"type": ("3",)}, duel="ground"),  # take on
    Rule("DRIVE", {"type": ("42", "49", "61")}),  # good skill; ball recovery; ball touch
    Rule("HEADER", {"type": ("44",), "outcome": ("1",)}, until_later="OTHER", duel="air"),  # aerial won
    Rule("OTHER", {"type": ("44",)}, duel="air"),
    Rule("HEADER", {"type": ("12",), "qualifier": ("15",)}),  # clearance with the head
    Rule("DRIVE", {"type": ("67",)}, duel="loose"),  # 50/50
    Rule("LEFT OUT", {"type": ("55",)}),  # offside provoked: 1 ms after the pass, so it would reveal how that ends
    Rule("LEFT OUT", {"type": ("18", "19", "20", "21", "22", "23", "24", "25", "34", "35", "36", "40")}),  # line-ups
    Rule("LEFT OUT", {"type": ("27", "28", "30", "32", "37", "43", "64", "70", "71", "75", "76", "77")}),  # the clock
)

# Any provider that kloppy reads: kloppy's own types, qualifiers and results.
_PASS = {"kloppy": ("PASS",)}
KLOPPY = (
    Rule("SHOT", {"kloppy": ("SHOT",)}),
    Rule("THROW IN", {**_PASS, "SetPieceType": ("THROW_IN",)}),
    Rule("CROSS", {**_PASS, "SetPieceType": ("CORNER_KICK",)}),
    Rule("CROSS", {**_PASS, "PassType": ("CROSS",)}),
    Rule("OTHER", {**_PASS, "SetPieceType": ("FREE_KICK",)}),
    Rule("HIGH PASS", {**_PASS, "SetPieceType": ("GOAL_KICK",)}),
    Rule("HEADER", {**_PASS, "PassType": ("HEAD_PASS",)}),
    Rule("HEADER", {**_PASS, "BodyPart": ("HEAD",)}),
    Rule("HIGH PASS", {**_PASS, "PassType": ("HIGH_PASS", "LONG_BALL", "LAUNCH", "CHIPPED_PASS")}),
    Rule("PASS", _PASS),
    Rule("OUT", {"kloppy": ("BALL_OUT",)}),
    Rule("BALL PLAYER BLOCK", {"kloppy": ("INTERCEPTION",)}),
    Rule("DRIVE", {"kloppy": ("CARRY", "RECOVERY")}),
    Rule("DRIVE", {"kloppy": ("TAKE_ON",)}, duel="ground"),
    Rule(
        "HEADER",
        {"kloppy": ("DUEL",), "DuelType": ("AERIAL",), "result": ("WON",)},
        until_later="OTHER",
        duel="air",
    ),
    Rule("OTHER", {"kloppy": ("DUEL",), "DuelType": ("AERIAL",)}, duel="air"),
    Rule(
        "PLAYER SUCCESSFUL TACKLE",
        {"kloppy": ("DUEL",), "DuelType": ("TACKLE", "SLIDING_TACKLE"), "result": ("WON",)},
        until_later="OTHER",
        duel="ground",
    ),
    Rule("DRIVE", {"kloppy": ("DUEL",), "DuelType": ("LOOSE_BALL",)}, duel="loose"),
    Rule("OTHER", {"kloppy": ("DUEL",)}, duel="ground"),
    Rule("LEFT OUT", {"kloppy": ("SUBSTITUTION", "FORMATION_CHANGE", "PLAYER_ON", "PLAYER_OFF", "PRESSURE")}),
)

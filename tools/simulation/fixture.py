"""What is to be played: a match's seed and how good its sides are; and that as the engine wants it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

FOREVER = 1_000_000  # steps, so that the engine's own clock never ends a match
SKILLS = (1.0, 0.95, 0.9, 0.8, 0.6)  # of a side's AI, from 0 to 1: what the engine calls its difficulty

# Where players stand at the kick-off, as x from −1 (own goal) to 1 and y from −0.42 to 0.42, and in which role.
OTHERS = (
    (-0.422, -0.19576, "LB"),
    (-0.5, -0.06356, "CB"),
    (-0.5, 0.063559, "CB"),
    (-0.422, 0.19576, "RB"),
    (-0.184212, -0.10568, "CM"),
    (-0.267574, 0.0, "CM"),
    (-0.184212, 0.10568, "CM"),
    (-0.01, -0.2161, "LM"),
)
KEEPER = (-1.0, 0.0, "GK")
KICKING_OFF = (KEEPER, (0.0, 0.02, "RM"), (0.0, -0.02, "CF"), *OTHERS)
WAITING = (KEEPER, (-0.05, 0.0, "RM"), (-0.01, 0.216102, "CF"), *OTHERS)


@dataclass(frozen=True)
class Fixture:
    """A match to be played.

    Attributes:
        seed: of the engine's random numbers; the same seed gives the same match.
        left, right: the skills of the sides that begin on the left and on the right.
    """

    seed: int
    left: float
    right: float

    @classmethod
    def draw(cls, seed: int) -> "Fixture":
        """Draw the skills at random, from the seed."""
        rng = np.random.default_rng(seed)
        rng.random()  # once the brightness of films; without it all matches would be others
        left, right = rng.choice(SKILLS, 2)
        return cls(seed, float(left), float(right))

    def scenario(self, engine: Any) -> Any:
        """The engine's description of it: eleven against eleven, all played by the engine; the right kick off."""
        scenario = engine.ScenarioConfig.make()
        scenario.game_engine_random_seed = self.seed
        scenario.deterministic = False
        scenario.reverse_team_processing = bool(self.seed % 2)  # neither side always decides first
        scenario.game_duration = FOREVER
        scenario.left_agents = scenario.right_agents = 0
        scenario.left_team_difficulty, scenario.right_team_difficulty = self.left, self.right
        for team, formation in ((scenario.left_team, WAITING), (scenario.right_team, KICKING_OFF)):
            for x, y, role in formation:
                player = engine.FormationEntry(x, y, getattr(engine.e_PlayerRole, f"e_PlayerRole_{role}"), False, True)
                team.append(player)
        return scenario

"""Who had the ball and when: spells in which a player owns it, and touches that nobody comes to own it by."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tools.simulation.states import HALF_LENGTH, States
from tools.simulation.thresholds import (
    NEAR_POSTS,
    SAME_SPELL,
    TOUCH_APART,
    TOUCH_CHANGE,
    TOUCH_REACH,
    TOUCH_SHARE,
)


@dataclass(frozen=True)
class Contact:
    """A player at the ball, from step `start` to before step `stop`; `held` if they owned it, else a mere touch."""

    start: int
    stop: int
    team: int
    player: int
    held: bool


def find_contacts(states: States) -> list[Contact]:
    """All contacts of a match, in order of their start."""
    return sorted([*find_spells(states), *find_touches(states)], key=lambda contact: contact.start)


def find_spells(states: States) -> list[Contact]:
    """Stretches in which one player owns the ball; short losses to nobody are part of them, a cut never is."""
    owner, scene = states.owner, states.scene
    changes = (np.diff(owner, axis=0) != 0).any(axis=1) | (np.diff(scene) != 0)  # (T − 1,)
    spells: list[Contact] = []
    for start, stop in pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(states)]):
        team, player = owner[start].tolist()
        if team < 0:
            continue
        last = spells[-1] if spells else None
        if (
            last is not None
            and (last.team, last.player) == (team, player)
            and start - last.stop <= SAME_SPELL
            and scene[last.start] == scene[start]
        ):
            start = spells.pop().start
        spells.append(Contact(start, stop, team, player, held=True))
    return spells


def find_touches(states: States) -> list[Contact]:
    """Moments when a free ball changes its velocity beside a player."""
    change = np.zeros(len(states))  # (T,) from the step before to the step after
    change[1:-1] = np.hypot(*(states.velocity[2:, :2] - states.velocity[:-2, :2]).T)
    speed, free = states.speed, states.owner[:, 0] < 0
    touches, step = [], 3
    while step < len(states) - 3:
        if (
            free[step - 2 : step + 3].all()
            and states.scene[step - 2] == states.scene[step + 2]
            and abs(states.ball[step, 0]) < NEAR_POSTS * HALF_LENGTH
            and change[step] > TOUCH_CHANGE
            and change[step] > TOUCH_SHARE * speed[step - 1]
        ):
            step += int(change[step : step + 3].argmax())
            away = np.hypot(*np.moveaxis(states.players[step] - states.ball[step, :2], -1, 0))  # (2, 11) m
            if away.min() < TOUCH_REACH:
                team, player = divmod(int(away.argmin()), away.shape[1])
                touches.append(Contact(step, step + 1, team, player, held=False))
                step += TOUCH_APART
                continue
        step += 1
    return touches

"""Derive the ten ball actions from a match's states. The rules are ours; their numbers are in thresholds.py.

A player who wins the ball from an opponent has tackled, one who runs with it drives. A free ball that is touched high
up is headed, one that is touched right after an opponent's kick is blocked. When a player who had the ball sends it
away, that is a shot, a cross, a high pass or a pass, the first of these that fits. One-touch kicks are not labelled:
with them there would be more passes than in simbaa. Restarts by foot are no actions; a throw-in is.
"""

from dataclasses import dataclass

import numpy as np

from ballcast.core.actions import FRAME_MS
from ballcast.core.events import Event
from tools.simulation import thresholds as at
from tools.simulation.contacts import Contact, find_contacts
from tools.simulation.states import CORNER, GOAL_KICK, HALF_LENGTH, IN_PLAY, THROW_IN, States

TEAMS = ("home", "away")  # the left side, the right side


@dataclass(frozen=True)
class Kick:
    """The ball leaves a team's player: free from step `start` on, until somebody is at it or there is a cut at `stop`.

    `speed`: m/s over the ground, the fastest of its first steps. `restart`: a goal kick, a corner and the like.
    """

    team: int
    start: int
    stop: int
    speed: float
    restart: bool


def find_actions(states: States) -> list[Event]:
    """All actions of a match, in order of time; positions in ms from its first step, teams "home" and "away"."""
    contacts = find_contacts(states)
    found = [*contact_actions(states, contacts), *line_actions(states, contacts)]
    return sorted(found, key=lambda event: (event.position_ms, event.label))


def contact_actions(states: States, contacts: list[Contact]) -> list[Event]:
    """What players do with the ball."""
    found: list[Event] = []
    last_kick: Kick | None = None
    last_tackle: Contact | None = None
    for before, contact, after in zip([None, *contacts], contacts, [*contacts[1:], None], strict=False):
        if contact.held:
            if before and is_tackle(states, before, contact, last_tackle):
                found.append(_event("PLAYER SUCCESSFUL TACKLE", contact.start, contact.team))
                last_tackle = contact
            if is_drive(states, contact):
                found.append(_event("DRIVE", contact.start + at.DRIVE_DELAY, contact.team))
        elif states.ball[contact.start, 2] > at.HEADER_HEIGHT:
            found.append(_event("HEADER", contact.start, contact.team))
        elif last_kick and is_block(contact, last_kick):
            found.append(_event("BALL PLAYER BLOCK", contact.start, contact.team))
        kick = find_kick(states, contact, after)
        if kick is None:
            continue
        if contact.held and not kick.restart:
            found.append(_event(name_kick(states, kick), kick.start - 1, kick.team))
        if contact.held or kick.restart or kick.speed > at.TOUCH_KICK_SPEED:
            last_kick = kick
    return found


def line_actions(states: States, contacts: list[Contact]) -> list[Event]:
    """Balls that leave the pitch, by the team that touched them last, and throw-ins.

    The game cuts when the ball is out, and goes on with the restart.
    """
    cut, mode = np.diff(states.scene) != 0, states.mode  # (T − 1,), (T,)
    out = np.flatnonzero(cut & np.isin(mode[1:], (GOAL_KICK, CORNER, THROW_IN)))
    thrown = np.flatnonzero((mode[:-1] == THROW_IN) & (mode[1:] == IN_PLAY)) + 1

    def last_team(step: int) -> int:
        return next((contact.team for contact in reversed(contacts) if contact.start <= step), 0)

    return [_event("OUT", step, last_team(step)) for step in out.tolist()] + [
        _event("THROW IN", step, last_team(step - 1)) for step in thrown.tolist()
    ]


def is_tackle(states: States, before: Contact, contact: Contact, last_tackle: Contact | None) -> bool:
    """Whether the ball goes from an opponent's foot to this player, who keeps it, and not in the same duel again."""
    return (
        states.mode[contact.start] == IN_PLAY
        and before.held
        and before.team != contact.team
        and states.scene[before.stop - 1] == states.scene[contact.start]
        and contact.start - before.stop <= at.TACKLE_GAP
        and contact.stop - contact.start >= at.TACKLE_HOLD
        and (last_tackle is None or contact.start - last_tackle.start >= at.TACKLES_APART)
    )


def is_drive(states: States, contact: Contact) -> bool:
    """Whether the player goes somewhere with the ball."""
    way = states.ball[contact.stop - 1, :2] - states.ball[contact.start, :2]
    return (
        states.mode[contact.start] == IN_PLAY
        and contact.stop - contact.start >= at.DRIVE_STEPS
        and np.hypot(*way) > at.DRIVE_METRES
    )


def is_block(contact: Contact, kick: Kick) -> bool:
    """Whether the player is in the way of an opponent's kick."""
    return contact.team != kick.team and contact.start - kick.start <= at.BLOCK_STEPS


def find_kick(states: States, contact: Contact, after: Contact | None) -> Kick | None:
    """The kick that ends a contact; None if the ball is taken, or left, or the scene ends."""
    start, scene = contact.stop, states.scene[contact.stop - 1]
    if start >= len(states) - 2 or states.scene[start + 1] != scene:
        return None
    stop = start + int(np.searchsorted(states.scene[start:], scene, side="right"))
    if after and states.scene[after.start] == scene:
        stop = after.start
        if contact.held and after.start - contact.stop <= at.TAKEN_GAP:
            return None
    speed = float(states.speed[start : start + 3].max())
    restart = bool(states.mode[contact.stop - 1] != IN_PLAY)
    return Kick(contact.team, start, stop, speed, restart) if restart or speed >= at.KICK_SPEED else None


def name_kick(states: States, kick: Kick) -> str:
    """Shot, cross, high pass or pass."""
    forward = 1 if kick.team == 0 else -1
    x, y = states.ball[kick.start, :2] * (forward, 1)
    if x > at.SHOT_FROM * HALF_LENGTH and kick.speed > at.SHOT_SPEED:
        vx, vy = states.velocity[kick.start + 1, :2] * (forward, 1)
        if vx > at.SHOT_FORWARD and abs(y + vy / vx * (HALF_LENGTH - x)) < at.SHOT_WIDE:
            return "SHOT"
    end_x, end_y = states.ball[min(kick.stop, len(states) - 1), :2] * (forward, 1)
    if (
        x > at.CROSS_FROM * HALF_LENGTH
        and abs(y) > at.CROSS_WING
        and abs(end_y) < at.CROSS_INWARD * abs(y)
        and end_x > at.CROSS_TO * HALF_LENGTH
    ):
        return "CROSS"
    return "HIGH PASS" if states.ball[kick.start : kick.stop, 2].max() > at.HIGH_PASS_HEIGHT else "PASS"


def _event(label: str, step: int, team: int) -> Event:
    return Event(label, step * FRAME_MS, TEAMS[team])

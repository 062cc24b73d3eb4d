"""Who is at the ball: what is one spell, and what is a touch."""

from tools_simulation.story import Story

from tools.simulation.contacts import Contact, find_contacts, find_spells, find_touches


def test_contacts_come_in_order() -> None:
    story = Story().held(0, 5, 10).free(20, (12, 0)).touched(1, 3).free(20, (-8, 4)).held(0, 7, 4)
    assert find_contacts(story.states()) == [
        Contact(0, 10, team=0, player=5, held=True),
        Contact(29, 30, team=1, player=3, held=False),
        Contact(50, 54, team=0, player=7, held=True),
    ]


def test_a_short_loss_is_part_of_a_spell_unless_somebody_else_has_the_ball() -> None:
    def spells(story: Story) -> list[tuple[int, int]]:
        return [(spell.start, spell.stop) for spell in find_spells(story.states())]

    assert spells(Story().held(0, 5, 10).free(12, (1, 0)).held(0, 5, 3).free(12, (1, 0)).held(0, 5, 3)) == [(0, 40)]
    assert spells(Story().held(0, 5, 10).free(13, (1, 0)).held(0, 5, 10)) == [(0, 10), (23, 33)]
    assert spells(Story().held(0, 5, 10).held(1, 5, 2).held(0, 5, 10)) == [(0, 10), (10, 12), (12, 22)]
    assert spells(Story().held(0, 5, 10).held(0, 6, 10)) == [(0, 10), (10, 20)]


def test_a_touch_changes_the_balls_way() -> None:
    def touches(before: float, after: float, away: float = 0.5) -> int:
        story = Story().free(20, (before, 0)).touched(1, 10, away).free(20, (after, 0))
        return len(find_touches(story.states()))

    assert touches(5, 8) == touches(5, 2) == touches(5, -5) == 1
    assert touches(5, 7) == 0  # too little
    assert touches(20, 16) == 0  # a ball so fast may bounce or slow down by that much
    assert touches(20, 12) == 1
    assert touches(5, 8, away=1.2) == 1
    assert touches(5, 8, away=1.5) == 0  # out of reach


def test_one_touch_is_found_once() -> None:
    """Velocities may change over several steps, and the moment is where they change most."""
    story = Story().free(20, (12, 0)).free(1, (10, 0)).touched(0, 2).free(1, (-2, 0)).touched(0, 2).free(20, (-6, 0))
    assert find_touches(story.states()) == [Contact(21, 22, team=0, player=2, held=False)]


def test_a_ball_that_somebody_has_or_gets_at_once_is_not_touched() -> None:
    assert not find_touches(Story().held(0, 5, 20, (5, 0)).held(0, 5, 20, (-5, 0)).states())
    assert not find_touches(Story().free(20, (5, 0)).touched(0, 5).held(0, 5, 20, (-5, 0)).states())


def test_a_cut_touches_nothing() -> None:
    assert not find_touches(Story().free(20, (5, 0)).touched(0, 5).free(20, (-5, 0), cut=9).states())

"""Overlapping clips joined by their labels: which are, which are not, and the events of what comes out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from synthetic import WINDOWS, make_game

from ballcast.core.clips import Clip, Event
from ballcast.data.soccernet import read_labels
from ballcast.data.stitch import Stretch, follows, match_events, stitch
from ballcast.data.windows import stitched_windows


def test_clips_of_two_games_are_kept_apart(tmp_path: Path) -> None:
    first = read_labels(make_game(tmp_path / "a", 60, seed=1).labels)
    second = read_labels(make_game(tmp_path / "b", 60, seed=2).labels)
    assert [len(s.clips) for s in stitch([*first, *second])] == [len(first), len(second)]


def test_labels_that_disagree_or_say_nothing_do_not_stitch() -> None:
    a = Clip("a", (Event("PASS", 6000),), ())
    assert follows(a, Clip("b", (Event("PASS", 1000),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1001),), ()), tolerance_ms=0)
    assert follows(a, Clip("b", (Event("PASS", 1040),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1041),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000), Event("SHOT", 2000)), ()))
    assert not follows(Clip("a"), Clip("b"))


def test_teams_and_visibility_must_agree() -> None:
    a = Clip("a", (Event("PASS", 6000, "home"),), ())
    assert follows(a, Clip("b", (Event("PASS", 1000, "home"),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000, "away"),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 1000, "home", visible=False),), ()))


def jittered(clips: list[Clip], most_ms: int) -> list[Clip]:
    """The clips with every label moved by −most_ms … most_ms, each clip its own way; none leaves its part."""
    rng = np.random.default_rng(0)

    def moved(events: tuple[Event, ...], low: int, high: int) -> tuple[Event, ...]:
        by = rng.integers(-most_ms, most_ms + 1, len(events)).tolist()
        return tuple(
            replace(e, position_ms=min(max(e.position_ms + d, low), high)) for e, d in zip(events, by, strict=True)
        )

    return [
        replace(c, observation=moved(c.observation, 0, 29_999), anticipation=moved(c.anticipation, 30_000, 34_999))
        for c in clips
    ]


def test_labels_a_millisecond_apart_are_stitched(tmp_path: Path) -> None:
    store = make_game(tmp_path / "train", 100, seed=3)
    clips = read_labels(tmp_path / "train")
    exact = stitched_windows([(store, clips)], WINDOWS)
    apart = jittered(clips, 1)
    assert len(stitch(apart, tolerance_ms=0)) > 5
    (stretch,) = stitch(apart)
    happened, expected = stretch.events(), Stretch(tuple(clips)).events()
    assert [e.label for e in happened] == [e.label for e in expected]  # each once
    assert max(abs(a.position_ms - b.position_ms) for a, b in zip(happened, expected, strict=True)) <= 1
    windows = stitched_windows([(store, apart)], WINDOWS)
    assert len(windows) == len(exact) == 66
    assert windows.stretches == ((14,),)
    failed = stitched_windows([(store, apart)], WINDOWS, tolerance_ms=0)
    assert sum(failed.stretches[0]) == 14
    assert len(failed) < 40


def test_an_event_at_the_edge_of_the_shared_time_may_be_in_one_clip_only() -> None:
    """A label at 0 ms of the second clip may be at −1 ms there, and one at 29 999 ms at 30 000."""
    middle = Event("PASS", 20_000)
    a = Clip("a", (Event("SHOT", 5000), middle), (Event("OUT", 34_999),))
    assert follows(a, Clip("b", (Event("PASS", 15_000),), ()))
    assert not follows(a, Clip("b", (Event("PASS", 15_000),), ()), tolerance_ms=0)
    assert not follows(Clip("a", (Event("SHOT", 5040), middle), ()), Clip("b", (Event("PASS", 15_000),), ()))
    assert not follows(Clip("a", (Event("SHOT", 5000),), ()), Clip("b"))  # no label in common


def test_neighbouring_events_of_one_label_are_paired_one_to_one() -> None:
    """Two passes 30 ms apart are two events, in one clip and across two."""
    first, second = [Event("PASS", 1000), Event("PASS", 1030)], [Event("PASS", 1001), Event("PASS", 1031)]
    assert match_events(first, second, 40) == (2, [], [])
    assert match_events(first[:1], second, 40) == (1, [], [second[1]])
    assert match_events(first, [Event("SHOT", 1000)], 40) == (0, first, [Event("SHOT", 1000)])
    a = Clip("a", (Event("PASS", 20_000),), (Event("PASS", 34_990),))
    b = Clip("b", (Event("PASS", 15_000), Event("PASS", 29_990)), (Event("PASS", 30_010),))
    (stretch,) = stitch([a, b])
    assert [e.position_ms for e in stretch.events()] == [20_000, 34_990, 35_010]


def test_two_teams_at_the_same_time_are_two_events() -> None:
    both = Clip("a", (Event("HEADER", 6000, "home"), Event("HEADER", 6000, "away")), ())
    after = Clip("b", tuple(replace(e, position_ms=1000) for e in both.observation), ())
    (stretch,) = stitch([both, after])
    assert sorted(e.team for e in stretch.events()) == ["away", "home"]

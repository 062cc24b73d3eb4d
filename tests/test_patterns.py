"""Patterns that meet what strangers send take a time proportional to its length, however it is made."""

import re
import time
from collections.abc import Callable

import pytest

from ballcast.core import checks
from ballcast.data.events.feed_files import MARKS
from ballcast.data.labels import games, spots
from ballcast.video.addresses import shown
from ballcast_server import networks
from ballcast_server.web import guard, multipart

LENGTH = 1 << 14  # a quadratic pattern takes a third of a second, a linear one at most milliseconds
PATTERNS = sorted({p for m in MARKS.values() for p in (*m.events, *m.lineup, m.match_id) if p})
# What the patterns look for, and the beginnings of it; every pair is tried, the first once and the second repeated.
PARTS = [
    "", " ", "\n", "a", "1", "=", ":", ".", "<", '"', "-", "pass", "password=", "a.", "[",
    "<Game ", "<Game id=", '<Game id="f1', "<Games", "<SoccerDocument ", '<SoccerDocument uID="', "<matchEvents",
    "<matchInfo ", "<matchInfo id=", '"matchInfo"', '"matchInfo" : { "id" : ', '"matchInfo":{', "<PutDataRequest ",
    "<MatchInformation", "<Event", 'MatchId="', 'MatchId="a', '"liveData"', '"event"', '"event" ', '"lineup"',
    '"primary" ', "PAR1", "boundary=", 'boundary="', "filename*=utf-8''", "rtsp://", "a@", "+1", "http://a",
]  # fmt: skip


def seconds(function: Callable[[str], object], text: str) -> float:
    """Processor time of one call, the least of three: other programs may share the machine."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        function(text)
        times.append(time.thread_time() - began)
        if times[-1] < 0.005:
            break
    return min(times)


def assert_linear(function: Callable[[str], object], first: str, repeated: str) -> None:
    """Twice the length takes about twice the time; what takes a few milliseconds is not looked at."""
    count = LENGTH // len(repeated)
    whole = seconds(function, first + repeated * count)
    if whole > 0.01:
        half = seconds(function, first + repeated * (count // 2))
        assert whole < 3 * half, f"{first!r} and {count} times {repeated!r}: {half:.3f} s, then {whole:.3f} s"


OTHERS: dict[str, Callable[[str], object]] = {
    "an address, without its password": shown,
    "the host of an address": lambda text: networks._HOST.fullmatch(text),
    "the host of a request": lambda text: guard._HOST.fullmatch(text),
    "a form's boundary": lambda text: multipart._BOUNDARY.search(text),
    "a form's file name": lambda text: multipart._EXTENDED.search(text.encode()),
    "the clock of a label": lambda text: games.GAME_TIME.match(text),
    "a time in a table of spots": spots._seconds,
    "the label of a spot": spots.action_of,
    "a whole number": lambda text: checks._WHOLE.fullmatch(text),
}


@pytest.mark.parametrize("name", [*PATTERNS, *OTHERS])
def test_twice_the_length_takes_twice_the_time(name: str) -> None:
    function = OTHERS.get(name) or re.compile(name).search
    for first in PARTS:
        for repeated in PARTS[1:]:
            assert_linear(function, first, repeated)


def test_a_quadratic_pattern_is_noticed() -> None:
    with pytest.raises(AssertionError, match="2730 times '<Game '"):
        assert_linear(re.compile(r'<Game\b[^>]*?\bid="f?(\d+)"').search, "", "<Game ")

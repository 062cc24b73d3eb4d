"""The benchmark on real broadcasts: its windows and labels, its chain, and that it says when there is nothing to do."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ballcast.core.events import Event
from ballcast.core.spots import Spots
from benchmarks import broadcasts

PASS, DRIVE, SHOT = 0, 1, 6


def half(times: list[int], actions: list[int], sure: float = 1.0) -> Spots:
    n = len(times)
    nobody = np.full(n, -1)
    return Spots(np.array(times), np.array(actions), np.full(n, sure, np.float32), nobody, nobody, name="h")


def test_windows_begin_with_the_first_event() -> None:
    one = half([2000, 3000, 20_000], [PASS, DRIVE, SHOT])
    assert broadcasts.windows(one).tolist() == [2000, 7000, 12_000]
    clip = broadcasts.clip_of(one, 2000)
    assert clip.anticipation == (Event("PASS", 30_000), Event("DRIVE", 31_000))
    assert broadcasts.clip_of(one, 15_000).anticipation == ()  # 20 s is 5 s later


def test_the_chain_knows_sure_spots_only() -> None:
    seen = half([1000, 2000], [PASS, DRIVE])
    last, since = broadcasts.last_before(seen, np.array([500, 1000, 1001, 2500, 40_000]))
    assert last.tolist() == [-1, -1, PASS, DRIVE, -1]
    assert since[2:4].tolist() == [1, 500]
    weak = broadcasts.last_before(half([1000], [PASS], sure=0.4), np.array([1500]))
    assert weak[0].tolist() == [-1]


def test_the_chain_expects_what_followed() -> None:
    """Windows end 3 s after a shot; a pass comes at once and a shot after 2 s: that is when the chain expects them."""
    times = [t for k in range(200) for t in (5000 * k, 5000 * k + 2000)]
    match = half(times, [PASS, SHOT] * 200)
    chain = broadcasts.Chain([match])
    scores = chain.scores(match, np.array([500_000]))[0]  # (32, C)
    assert scores[:, PASS].argmax() == 0
    assert scores[:, SHOT].argmax() == 12  # of 160 ms
    assert not scores[:, DRIVE].any() or scores[:, DRIVE].max() < scores[:, SHOT].max()
    state = chain._state(np.array([SHOT]), np.array([3000]))[0]
    assert chain.intensity[state][SHOT, 12] == pytest.approx(1, abs=0.01)


def test_without_data_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["broadcasts", "--shared", str(tmp_path)])
    broadcasts.main()
    assert "has no data/footpass, nothing to measure" in capsys.readouterr().out


def test_the_validation_matches_have_as_many_windows_as_the_record(shared: Path) -> None:
    path = shared / "data/footpass/playbyplay_val.json"
    if not path.is_file():
        pytest.skip("no FOOTPASS")
    halves = broadcasts.read_spots(path).videos
    assert [len(one) for one in halves] == [1042, 837, 924, 1052, 1202, 1013]
    assert sum(len(broadcasts.windows(one)) for one in halves) == 3605

"""Going on after damage: every frame that comes is the right one, and a gap stands for the others."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.core.events import Gap, Scene, clock
from ballcast.video.file import VideoFile
from ballcast.video.pitch import frames_and_scenes
from ballcast.video.sources import FileSource, StreamGap
from tests.video.conftest import Make, number_of
from tests.video.test_container import overwrite, packets

TS_PACKET = 188


def lose_packets(path: Path, share: float, count: int = 3) -> Path:
    """Take `count` transport packets out of a file at a share of its length."""
    raw = path.read_bytes()
    at = TS_PACKET * int(len(raw) // TS_PACKET * share)
    path.write_bytes(raw[:at] + raw[at + count * TS_PACKET :])
    return path


def read(path: Path, start: int = 0, stop: int | None = None, threads: int = 0) -> tuple[dict[int, int], list[Gap]]:
    """The number drawn into each output frame that comes, by its place, and the gaps."""
    frames, gaps, n = {}, [], start
    for item in frames_and_scenes(VideoFile(path, threads=threads, strict=False), start, stop, any_video=True):
        assert not isinstance(item, Scene)
        if isinstance(item, Gap):
            gaps.append(item)
            assert item.begin_ms == n * 40
            n = item.end_ms // 40
        else:
            frames[n] = number_of(item)
            n += 1
    return frames, gaps


@pytest.mark.parametrize("bframes", ["0", "2"])
@pytest.mark.parametrize("threads", [1, 4])
def test_lost_packets_cost_the_pictures_up_to_the_next_key_frame(make: Make, bframes: str, threads: int) -> None:
    path = lose_packets(make("a.ts", range(200), codec_options={"bf": bframes}), 0.5)
    frames, gaps = read(path, threads=threads)
    assert all(place == number for place, number in frames.items())
    (gap,) = gaps
    assert 0 < gap.end_ms - gap.begin_ms <= 12 * 40  # a key frame every 12
    assert len(frames) == 200 - (gap.end_ms - gap.begin_ms) // 40
    assert gap.reason == "a picture is damaged"


def test_any_part_of_a_damaged_video_equals_the_whole(make: Make) -> None:
    path = lose_packets(make("a.ts", range(200)), 0.5)
    whole, (gap,) = read(path)
    for start in (10, gap.begin_ms // 40 - 5, gap.begin_ms // 40 + 2, gap.end_ms // 40, 150):
        part, gaps = read(path, start, start + 30)
        assert part == {n: number for n, number in whole.items() if start <= n < start + 30}, start
        assert [g.end_ms for g in gaps] == ([gap.end_ms] if start * 40 < gap.end_ms < (start + 30) * 40 else [])


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_overwritten_bytes_and_damage_at_the_beginning(make: Make, suffix: str) -> None:
    path = make(f"a.{suffix}", range(200))
    coded = packets(path)
    overwrite(path, coded[103][0], 200)  # its first bytes too: damage deep inside a picture may decode without a fault
    frames, gaps = read(path)
    assert len(gaps) == 1
    assert len(frames) > 150
    assert all(place == number for place, number in frames.items())
    overwrite(path, coded[0][0] + coded[0][1] // 3, 600)
    frames, gaps = read(path)
    assert gaps[0].begin_ms == 0
    assert len(gaps) == 2
    assert len(frames) > 150
    assert all(place == number for place, number in frames.items())
    with pytest.raises(InputError, match="is corrupt at 0"):
        VideoFile(path)


@pytest.mark.parametrize("audio", [False, True])
@pytest.mark.parametrize("first", [100, 103, 104, 107])
def test_blocks_that_matroska_passes_over_are_a_gap(make: Make, first: int, audio: bool) -> None:
    """Their heads are damaged, so they never come, and their times would show the picture before them."""
    path = make("a.mkv", range(200), audio=audio)
    coded = packets(path)
    overwrite(path, coded[first][0], 200)
    assert len(packets(path)) < 200
    frames, (gap,) = read(path)
    assert all(place == number for place, number in frames.items())
    assert len(frames) == 200 - (gap.end_ms - gap.begin_ms) // 40
    with pytest.raises(InputError, match=f"is corrupt at {gap.begin_ms // 40 / 25 - 0.039:.2f} s"):
        list(VideoFile(path).frames())


def test_every_reading_of_a_damaged_video_is_the_same(make: Make) -> None:
    """Threads of FFmpeg's that work on a picture each missed the damage in one of forty readings."""
    path = make("a.mkv", range(200))
    where, size, _ = packets(path)[91]
    overwrite(path, where + size // 3, 100)
    first = read(path, threads=1)
    assert len(first[1]) == 1
    assert all(read(path, threads=4) == first for _ in range(20))


def test_a_file_that_is_cut_short_ends_in_a_gap(make: Make) -> None:
    path = make("a.mkv", range(200))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    frames, gaps = read(path)
    assert list(frames) == list(frames.values()) == list(range(len(frames)))
    assert gaps[-1].end_ms == 8000
    assert gaps[-1].begin_ms == len(frames) * 40


def test_a_silence_between_two_pictures_is_a_gap(make: Make) -> None:
    times = [*range(50), *range(150, 200)]
    frames, gaps = read(make("a.mp4", times, codec_options={"bf": "0", "g": "10"}))
    assert frames[0] == 0
    assert frames[150] == 50
    assert [(gap.end_ms, gap.reason) for gap in gaps] == [(6000, "there are no pictures")]


def test_a_file_played_live_goes_on_after_damage(make: Make) -> None:
    path = lose_packets(make("a.ts", range(200)), 0.5)
    whole, (gap,) = read(path)
    items = list(FileSource(path, speed=0).items())
    (told,) = [item for item in items if isinstance(item, StreamGap)]
    assert told.message == f"{path}: no pictures {gap}"
    assert {i.at_ms // 40: number_of(i.pixels) for i in items if not isinstance(i, StreamGap)} == whole
    with pytest.raises(InputError, match="is corrupt at"):
        list(FileSource(path, speed=0, strict=True).items())


def test_gaps_for_people_and_for_programs() -> None:
    gap = Gap(62_000, 63_400, "a picture is damaged")
    assert str(gap) == "from 1:02.0 on, 1.4 s: a picture is damaged"
    assert Gap.from_json(gap.to_json()) == gap
    assert gap.to_json() == {"from": 62.0, "to": 63.4, "reason": "a picture is damaged", "kind": "damage"}
    assert (clock(59_970), clock(3_661_000)) == ("1:00.0", "1:01:01.0")


@pytest.mark.parametrize(("ratio", "size"), [("16/11", (64, 140)), ("4/3", (64, 128)), ("8/9", (72, 96))])
def test_pixels_that_are_not_square_are_stretched(make: Make, ratio: str, size: tuple[int, int]) -> None:
    path = make("a.mp4", range(20), ratio=Fraction(ratio))
    video = VideoFile(path)
    assert video.size == size
    frames = list(video.frames())
    assert {frame.shape for frame in frames} == {size}
    assert [number_of(frame) for frame in frames] == list(range(20))
    assert next(iter(video.frames(colour=True))).shape == (size[0] * 3 // 2, size[1])
    assert next(iter(FileSource(path, speed=0).items())).pixels.shape == size  # type: ignore[union-attr]


def test_nearly_square_pixels_are_left_alone(make: Make) -> None:
    assert VideoFile(make("a.mp4", range(3), ratio=Fraction(405, 404))).size == (64, 96)


def test_a_stream_stretches_them_too(make: Make) -> None:
    from ballcast.video.stream import StreamSource

    path = make("a.ts", range(30), ratio=Fraction(4, 3))
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.read", lambda _, most: file.read(most))
        shapes = {i.pixels.shape for i in StreamSource("-", speed=0).items() if not isinstance(i, StreamGap)}
    assert shapes == {(64, 128)}


def test_the_overlay_keeps_the_sound_and_shows_the_gap(make: Make, tmp_path: Path) -> None:
    from ballcast.video.overlay import write_overlay

    path = lose_packets(make("a.ts", range(50), audio=True, codec_options={"bf": "0"}), 0.5)
    _, gaps = read(path)
    target = tmp_path / "seen.mp4"
    written = write_overlay(path, target, [], gaps, note="trained on simulated matches")
    assert written == 50
    with av.open(str(path)) as old, av.open(str(target)) as new:
        (sound,) = new.streams.audio
        heard = [bytes(p) for p in new.demux(sound) if p.size]
        kept = [bytes(p)[7:] for p in old.demux(old.streams.audio[0]) if p.size and not p.is_corrupt]  # without ADTS
        assert heard == kept[-len(heard) :]  # not encoded again
        assert len(heard) >= len(kept) - 1  # the first one is before the first picture
        new.seek(0)
        frames = [frame.to_ndarray(format="gray") for frame in new.decode(new.streams.video[0])]
    lost = range(gaps[0].begin_ms // 40, gaps[0].end_ms // 40)
    for n, frame in enumerate(frames):
        blank = np.ptp(frame[34:62, 2:90].astype(int)) < 12
        assert blank == (n in lost), n
    strip = [frame[64:] for frame in frames]
    assert np.abs(strip[lost[0]].astype(int) - strip[2]).max() > 60  # it says so
    assert np.abs(strip[3].astype(int) - strip[2]).max() < 40


def test_a_part_of_a_video_is_drawn_with_its_sound(make: Make, tmp_path: Path) -> None:
    from ballcast.video.overlay import write_overlay

    target = tmp_path / "seen.mp4"
    path = make("a.mp4", range(100), audio=True)
    assert write_overlay(path, target, [], begin_ms=400, end_ms=800) == 10
    with av.open(str(target)) as new:
        assert Fraction(new.streams.video[0].duration * new.streams.video[0].time_base) == Fraction(10, 25)
        assert abs(new.streams.audio[0].duration * new.streams.audio[0].time_base - Fraction(2, 5)) < Fraction(1, 5)

"""Bad video: one clear sentence each, the good frames before the damage, and never an invented one."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from ballcast.core.errors import InputError
from ballcast.video.file import VideoFile
from tests.video.conftest import Make, number_of, numbers

FAST = {"movflags": "faststart"}


def until_fault(path: Path, **how: int) -> tuple[list[int], str]:
    """The numbers of the frames that come, and the sentence that ends them ("" if there is none)."""
    got: list[int] = []
    try:
        got.extend(number_of(y) for y in VideoFile(path, **how).frames())
    except InputError as error:
        return got, str(error)
    return got, ""


def packets(path: Path) -> list[tuple[int, int, float]]:
    """Where each packet lies in the file, its size, and its time."""
    with av.open(str(path)) as container:
        found = [(p.pos, p.size, p.pts * p.time_base) for p in container.demux(video=0) if p.size]
    return [(pos, size, float(time)) for pos, size, time in found if pos is not None]


def overwrite(path: Path, at: int, length: int, seed: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + length] = np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.mp4", b"", "is empty"),
        ("a.mp4", b"<!DOCTYPE html><html><body>404</body></html>", "is a web page, not a video"),
        ("a.mp4", b"\n <html>log in", "is a web page, not a video"),
        ("a.mp4", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        ("a.mp4", bytes(range(256)) * 40, "is not a video that can be read"),
        ("a.mkv", b"PK\x03\x04" + b"\0" * 500, "is not a video that can be read"),
    ],
)
def test_what_is_no_video(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        VideoFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        VideoFile(tmp_path / "none.mp4")
    with pytest.raises(InputError, match="is a folder"):
        VideoFile(tmp_path)


def test_sound_only(tmp_path: Path) -> None:
    path = tmp_path / "a.m4a"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.float32), format="fltp", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(InputError, match="has no video stream, only audio"):
        VideoFile(path)


def test_mp4_without_its_index(make: Make) -> None:
    path = make("a.mp4", range(100))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(InputError, match=r"cut short, its index \(moov\)"):
        VideoFile(path)


def test_mp4_cut_in_the_middle_says_where(make: Make) -> None:
    path = make("a.mp4", range(100), options=FAST)
    where, size, time = packets(path)[60]
    path.write_bytes(path.read_bytes()[: where + size // 2])
    got, why = until_fault(path)
    assert got == list(range(len(got)))
    assert 50 <= len(got) <= round(time * 25) + 1
    assert "is cut short" in why
    said = float(why.split(" s;")[0].split()[-1])
    assert abs(said - time) < 0.2


def test_mp4_cut_between_two_frames_says_where(make: Make) -> None:
    path = make("a.mp4", range(100), options=FAST, codec_options={"bf": "0"})
    path.write_bytes(path.read_bytes()[: packets(path)[60][0]])
    got, why = until_fault(path)
    assert got == list(range(60))
    assert "2.40 s" in why


def test_matroska_cut_in_the_middle_says_where(make: Make) -> None:
    path = make("a.mkv", range(100), codec_options={"bf": "0"})
    path.write_bytes(path.read_bytes()[: packets(path)[60][0]])
    got, why = until_fault(path)
    assert got == list(range(len(got)))
    assert 55 <= len(got) <= 61
    assert "is cut short, its pictures end at 2." in why
    assert "of 4.00 s" in why


def test_a_cut_file_read_in_ranges(make: Make) -> None:
    path = make("a.mp4", range(100), options=FAST, codec_options={"bf": "0"})
    path.write_bytes(path.read_bytes()[: packets(path)[60][0]])
    video = VideoFile(path)
    assert numbers(video.read(30, 50)) == list(range(30, 50))
    for start in (50, 62, 90):
        with pytest.raises(InputError, match=r"2\.40 s"):
            video.read(start, 100)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("seed", range(4))
def test_damage_in_the_middle_is_told_with_its_time(make: Make, suffix: str, threads: int, seed: int) -> None:
    path = make(f"a.{suffix}", range(100), size=(96, 160))
    middle = packets(path)[30 + 12 * seed : 42 + 12 * seed]
    where, size, time = sorted(middle, key=lambda packet: packet[1])[
        -3
    ]  # not the key frame; too small a one may decode
    overwrite(path, where + size // 3, size // 2, seed)
    got, why = until_fault(path, threads=threads)
    assert got == list(range(len(got)))  # what comes before is whole
    assert f"{path}: is corrupt at " in why
    said = float(why.split("corrupt at ")[1].split(" s")[0])
    assert abs(said - time) < 0.2
    assert len(got) == round(said * 25)  # and all of it


def test_a_lost_frame_is_told(make: Make) -> None:
    """Zeroed slices: the decoder drops the picture without a word; the account of packets notices."""
    path = make("a.mp4", range(60), codec_options={"bf": "0"})
    where, size, time = packets(path)[33]
    raw = bytearray(path.read_bytes())
    raw[where + 4 : where + size] = b"\x0c" + bytes(size - 5)  # a filler unit in place of the slice
    path.write_bytes(raw)
    got, why = until_fault(path)
    assert got == list(range(33))
    assert f"corrupt at {time:.2f} s" in why


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_a_lost_transport_packet_is_told(make: Make, codec: str) -> None:
    """The decoder may conceal what is missing; the count of the transport packets tells."""
    path = make("a.ts", range(100), size=(96, 160), codec=codec, codec_options={"bf": "2"})
    assert until_fault(path) == (list(range(100)), "")
    raw = path.read_bytes()
    units = [raw[at : at + 188] for at in range(0, len(raw), 188)]
    video = [i for i, unit in enumerate(units) if int.from_bytes(unit[1:3], "big") & 0x1FFF == 0x100]
    for lost in video[len(video) // 2 :][:12]:
        path.write_bytes(b"".join(units[:lost] + units[lost + 1 :]))
        got, why = until_fault(path)
        assert "is corrupt at " in why, lost
        assert got == list(range(len(got)))  # what comes before is whole
        said = float(why.split("corrupt at ")[1].split(" s")[0])
        assert 0 <= round(said * 25) - len(got) <= 3  # the mark may be on the packet before the lost one


def test_damage_is_met_again_from_a_key_frame_before_it_and_not_after(make: Make) -> None:
    path = make("a.mp4", range(100), size=(96, 160), codec_options={"bf": "0"})
    where, size, _ = packets(path)[40]
    overwrite(path, where + size // 3, size // 3)
    video = VideoFile(path)
    with pytest.raises(InputError, match=r"corrupt at 1\.60 s"):
        video.read(37, 45)
    assert numbers(video.read(30, 38)) == list(range(30, 38))
    assert numbers(video.read(60, 70)) == list(range(60, 70))


def test_a_long_gap_is_told(make: Make) -> None:
    path = make("a.mkv", [*range(25), *range(100, 125)])
    got, why = until_fault(path)
    assert got == list(range(25))
    assert "has no pictures between 0.96 s and 4.00 s" in why


def test_frames_without_times_are_refused(make: Make) -> None:
    with pytest.raises(InputError, match="its frames carry no times"):
        VideoFile(make("a.h264"))


def test_avi_has_no_place_for_the_order_of_display(make: Make) -> None:
    """B-frames come out with the times of decoding, and are shown in their own order all the same."""
    got, why = until_fault(make("a.avi", codec_options={"bf": "3"}))
    assert why == ""
    assert got == list(range(50))


def test_a_short_stop_does_not_blame_the_rest(make: Make) -> None:
    path = make("a.mp4", range(100), Fraction(1, 25), options=FAST)
    path.write_bytes(path.read_bytes()[:-200])
    assert numbers(list(VideoFile(path).frames(0, 50))) == list(range(50))


def test_pictures_of_absurd_sides_are_refused(make: Make) -> None:
    wide = make("wide.mkv", range(2), codec="ffv1", pixels="gray", size=(2, 20_000))
    with pytest.raises(
        InputError, match=r"wide\.mkv: has pictures of 20000×2, above 8192 pixels a side; scale it down"
    ):
        VideoFile(wide).read(0, 1)

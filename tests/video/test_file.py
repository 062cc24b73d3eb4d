"""The frames at 25 fps are the right ones, whatever the rate, the container and the way they are read."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.errors import InputError
from ballcast.video.container import decoder_report
from ballcast.video.file import FrameSource, VideoFile, open_video
from ballcast.video.resample import snap
from tests.video.conftest import Make, number_of, numbers

ntsc = Fraction(1001, 30000)


def expected(times: list[int], unit: Fraction, count: int) -> list[int]:
    """Picture n is the latest that begins at or before n/25 s: said once more, the slow way."""
    begin = [(t - times[0]) * unit for t in times]
    return [max(i for i, b in enumerate(begin) if b <= Fraction(n, 25)) for n in range(count)]


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "flv", "mov"])
def test_a_25_fps_file_gives_each_frame_once(make: Make, suffix: str) -> None:
    video = VideoFile(make(f"a.{suffix}"))
    assert numbers(list(video.frames())) == list(range(50))
    assert video.size == (64, 96)


@pytest.mark.parametrize(
    ("rate", "pictures", "count"),
    [
        (Fraction(24000, 1001), 72, 75),
        (Fraction(24), 72, 75),
        (Fraction(30000, 1001), 90, 75),
        (Fraction(30), 90, 75),
        (Fraction(50), 150, 75),
        (Fraction(60), 180, 75),
        (Fraction(60000, 1001), 180, 75),
        (Fraction(10), 20, 50),
    ],
)
def test_other_rates_are_sampled_by_time(make: Make, rate: Fraction, pictures: int, count: int) -> None:
    path = make("a.mp4", range(pictures), 1 / rate, rate=rate)
    assert numbers(list(VideoFile(path).frames())) == expected(list(range(pictures)), 1 / rate, count)


def test_29_97_does_not_drift_in_half_a_minute(make: Make) -> None:
    path = make("a.mkv", range(900), ntsc, rate=1 / ntsc, size=(32, 96))  # Matroska rounds to milliseconds
    got = numbers(list(VideoFile(path).frames()))
    assert len(got) == 751  # 30.03 s
    assert all(abs(i * ntsc - Fraction(n, 25)) < Fraction(1, 25) for n, i in enumerate(got))


def test_variable_rate(make: Make) -> None:
    times = np.cumsum([0, *np.random.default_rng(0).integers(5, 120, 80)]).tolist()  # 5 to 119 ms apart
    path = make("a.mkv", times, Fraction(1, 1000))
    ticks = times[-1] // 40 + 1
    assert numbers(list(VideoFile(path).frames()))[:ticks] == expected(times, Fraction(1, 1000), ticks)


def test_a_clock_that_cannot_express_a_25th_still_gives_each_frame_once(make: Make) -> None:
    times = [round(7.3 + 614.4 * n) for n in range(100)]
    path = make("a.mp4", times, Fraction(1, 15360), options={"video_track_timescale": "15360"})
    assert numbers(list(VideoFile(path).frames())) == list(range(100))


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_time_counts_from_the_first_frame(make: Make, suffix: str) -> None:
    video = VideoFile(make(f"a.{suffix}", range(75, 125)))
    assert numbers(list(video.frames())) == list(range(50))
    assert numbers(video.read(20, 30)) == list(range(20, 30))
    assert video.duration_ms == 2000


@pytest.mark.parametrize(
    "options", [{"bf": "0"}, {"bf": "3", "b-pyramid": "normal"}, {"x264-params": "open-gop=1:bframes=3"}]
)
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_any_range_equals_the_sequential_frames(make: Make, suffix: str, options: dict[str, str]) -> None:
    path = make(f"a.{suffix}", range(120), ntsc, rate=1 / ntsc, codec_options=options)
    with VideoFile(path) as video:
        whole = np.stack(list(video.frames()))
        assert len(whole) == 100
        for start in range(0, 104, 3):
            assert np.array_equal(video.read(start, start + 4), whole[start : start + 4]), start
        assert np.array_equal(np.stack(list(video.frames(37, 61))), whole[37:61])


def test_any_range_of_a_program_stream_equals_the_sequential_frames(make: Make) -> None:
    """Its packets are not all timed, so times after a seek, and its stated length, would be guesses."""
    tiny = {"bf": "0", "b": "30000", "qmin": "31"}  # several pictures in each pack, which has one time
    path = make("a.mpg", range(200), codec="mpeg2video", size=(32, 96), codec_options=tiny)
    with VideoFile(path, threads=1) as video:
        whole = np.stack(list(video.frames()))
        assert numbers(list(whole)) == list(range(200))
        for start in range(0, 204, 3):
            video.close()  # a read in a row would continue
            assert np.array_equal(video.read(start, start + 3), whole[start : start + 3]), start
        assert video.frame_count() is None


def test_reads_in_a_row_continue_and_end(make: Make) -> None:
    with VideoFile(make("a.mp4")) as video:
        parts = [video.read(s, s + 20) for s in (0, 20, 40, 60)]
    assert [len(p) for p in parts] == [20, 20, 10, 0]
    assert numbers(np.concatenate(parts)) == list(range(50))
    assert parts[3].shape == (0, 64, 96)


def test_iterators_do_not_disturb_each_other(make: Make) -> None:
    video = VideoFile(make("a.mp4"))
    pairs = list(zip(video.frames(), video.frames(10), strict=False))
    assert [(number_of(a), number_of(b)) for a, b in pairs] == [(n, n + 10) for n in range(40)]


def test_frames_are_the_callers_own(make: Make) -> None:
    path = make("a.mp4", range(12), Fraction(1, 12), rate=12)  # each picture is given twice or more
    clean = list(VideoFile(path).frames())
    spoiled = []
    for y in VideoFile(path).frames():
        spoiled.append(y.copy())
        y[:] = 0
    assert np.array_equal(np.stack(clean), np.stack(spoiled))
    assert all(y.flags.c_contiguous and y.dtype == np.uint8 for y in clean)


def test_edit_list(make: Make, tmp_path: Path) -> None:
    """A copy cut without encoding again keeps frames before the cut, which the edit list hides."""
    import av

    source, cut = make("a.mp4", range(60)), tmp_path / "cut.mp4"
    with av.open(str(source)) as old, av.open(str(cut), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                packet.pts -= 5 * 512
                packet.dts -= 5 * 512
                new.mux(packet)
    assert numbers(list(VideoFile(cut).frames())) == list(range(5, 60))
    assert numbers(VideoFile(cut).read(30, 34)) == list(range(35, 39))


def test_times_of_decoding_are_put_in_order(make: Make, tmp_path: Path) -> None:
    """Of recorders that do not know B-frames."""
    import av

    source, other = make("a.mp4", range(60), codec_options={"bf": "2"}), tmp_path / "b.mp4"
    with av.open(str(source)) as old, av.open(str(other), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for number, packet in enumerate(p for p in old.demux(video=0) if p.size):
            packet.pts = packet.dts = number * 512  # in the order of decoding
            packet.stream = stream
            new.mux(packet)
    assert numbers(list(VideoFile(other).frames())) == list(range(60))
    assert numbers(VideoFile(other).read(30, 34)) == list(range(30, 34))


@pytest.mark.parametrize("threads", [1, 4])
def test_avi_with_b_frames(make: Make, threads: int) -> None:
    path = make("a.avi", range(60), codec="mpeg4", codec_options={"bf": "2", "qmin": "2", "qmax": "4"})
    assert numbers(list(VideoFile(path, threads=threads).frames()))[:57] == list(range(57))


def test_audio_is_ignored(make: Make) -> None:
    assert numbers(list(VideoFile(make("a.mp4", audio=True)).frames())) == list(range(50))


def test_one_frame(make: Make) -> None:
    video = VideoFile(make("a.mp4", range(1)))
    assert numbers(list(video.frames())) == [0]
    assert video.frame_count() == 1


def test_facts(make: Make) -> None:
    video = VideoFile(make("a.mp4", range(90), Fraction(1, 30), rate=30))
    assert video.duration_ms == 3000
    assert video.frame_count() == 75 == len(list(video.frames()))
    info = video.probe()
    assert (info.codec, info.pixels, info.height, info.width, info.rate) == ("h264", "yuv420p", 64, 96, 30.0)


def test_it_is_a_frame_source(make: Make) -> None:
    source: FrameSource = VideoFile(make("a.mp4", range(3)))
    assert source.read(0, 9).shape == (3, *source.size)


def test_frames_before_the_first_are_a_mistake_of_the_caller(make: Make) -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        next(VideoFile(make("a.mp4", range(3))).frames(-1))


def test_threads_change_nothing(make: Make) -> None:
    path = make("a.mp4")
    one, four = (np.stack(list(VideoFile(path, threads=t).frames())) for t in (1, 4))
    assert np.array_equal(one, four)


def test_a_size_that_changes_is_named(make: Make, tmp_path: Path) -> None:
    import av

    plain = {"bf": "0"}
    small = make("a.ts", range(25), codec_options=plain)
    large = make("b.ts", range(25, 50), size=(80, 96), codec_options=plain)
    both = tmp_path / "both.ts"
    # Muxed anew: bytes simply joined break the count of transport packets, which reads as lost ones.
    with av.open(str(small)) as one, av.open(str(large)) as two, av.open(str(both), "w") as new:
        stream = new.add_stream_from_template(one.streams.video[0])
        for packet in (*one.demux(video=0), *two.demux(video=0)):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    with pytest.raises(InputError, match="size changes to 96×80"):
        list(VideoFile(both).frames())


def test_a_match(shared: Path) -> None:
    video = VideoFile(shared / "data" / "simbaa" / "match_001.mp4")
    assert video.size == (224, 398)
    assert video.frame_count() == 7500
    tail = video.read(7490, 7600)
    assert len(tail) == 10
    assert np.array_equal(video.read(7495, 7496)[0], tail[5])


def test_cpu(make: Make) -> None:
    video = open_video(make("a.mp4", range(5)))
    assert video.decoder == "PyAV on the CPU"
    assert numbers(list(video.frames())) == list(range(5))


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_gives_the_same_frames_or_falls_back_with_a_reason(make: Make, device: str) -> None:
    video = open_video(make("a.mp4", range(30), size=(160, 256)), device=device)
    assert numbers(list(video.frames())) == list(range(30))
    assert video.decoder == "PyAV on the GPU (NVDEC)" or "PyAV on the CPU, since NVDEC failed: " in video.decoder


def test_a_bad_video_is_its_own_fault_not_the_devices(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"<html>")
    with pytest.raises(InputError, match="is a web page"):
        open_video(path, device="cuda")


def test_an_unknown_device_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device 'tpu' is not one that decodes"):
        open_video(tmp_path / "a.mp4", device="tpu")


def test_report() -> None:
    report = decoder_report()
    assert report["decoder"].startswith("PyAV ")
    assert set(report) == {"decoder", "nvdec"}


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_rolling_windows_share_the_grid_and_never_look_ahead(start: int, stride: int) -> None:
    on_grid = snap(start, stride)
    assert on_grid % stride == 0
    assert start - stride < on_grid <= start

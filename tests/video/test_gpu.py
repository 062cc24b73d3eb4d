"""The choice of decoder: what cannot be had on the GPU comes from the CPU, with the reason."""

from pathlib import Path

import pytest

from ballcast.core.errors import InputError
from ballcast.video.gpu import decoder_report, open_video
from tests.video.conftest import Make, numbers


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

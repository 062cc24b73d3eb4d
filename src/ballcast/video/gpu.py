"""Decoding on an NVIDIA GPU (NVDEC) where it works, on the CPU where it does not, and a word on which it is.

NVDEC is reached through PyAV, so timestamps, rotation and the Y plane are handled by the same code as on the CPU. The
hardware does not say which pictures it concealed: damage that the CPU decoder reports may pass. So it is used only when
asked for, and a video it cannot take (an odd codec, no driver, no free session) is decoded on the CPU instead.
"""

from pathlib import Path

import av
from av.codec.hwaccel import HWAccel, hwdevices_available

from ballcast.core.errors import InputError
from ballcast.video.decode import VideoFile


def open_video(path: Path | str, *, device: str = "cpu", threads: int = 0) -> VideoFile:
    """The video at `path`, decoded on `device` ("cpu", "cuda", "cuda:1") if that can be, else on the CPU.

    `VideoFile.decoder` says which, and why if it is not what was asked for. threads: of the CPU; 0: one per core.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return VideoFile(path, threads=threads)
    if kind != "cuda" or not (number or "0").isdigit():
        raise InputError(f"device {device!r} is not one that decodes; give cpu, cuda or cuda:1")
    try:
        accel = HWAccel("cuda", device=number or "0", allow_software_fallback=False)
        return VideoFile(path, threads=threads, accel=accel)
    except (InputError, av.FFmpegError, OSError, NotImplementedError, RuntimeError) as error:
        why = str(error)
    # A video that is at fault itself fails here again, with its own sentence.
    video = VideoFile(path, threads=threads)
    video.decoder = f"PyAV on the CPU, since NVDEC failed: {why}"
    return video


def decoder_report() -> dict[str, str]:
    """What decodes here, for `ballcast doctor`: the library, and whether it knows NVDEC (not whether there is one)."""
    codec = ".".join(map(str, av.library_versions["libavcodec"]))
    built = "cuda" in hwdevices_available()
    return {
        "decoder": f"PyAV {av.__version__}, libavcodec {codec}",
        "nvdec": "built in; used for device cuda if the driver allows" if built else "not in this build of PyAV",
    }

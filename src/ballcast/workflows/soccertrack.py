"""Turn SoccerTrack v2's panoramas into videos of a camera that follows the play, with labels, as our tools read them.

OUT gets `117092_1.mp4` and `117092_2.mp4` for each match, `matches.json` with the actions of all, in the layout of
simulated matches, and `camera.json` with the settings. A half that is there is kept, so the same call continues.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FRAME_MS
from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.files import exclusive_lock, make_parents, read_json, sweep, write_json
from ballcast.core.util import natural
from ballcast.data.labels.games import MATCHES
from ballcast.data.labels.soccertrack import (
    FAULTY,
    Half,
    Tracks,
    ball_in_picture,
    find_halves,
    player_mean,
    project,
    read_ball,
    read_tracks,
)
from ballcast.video.camera import crop_size, follow, write_crop
from ballcast.video.file import VideoFile

SETTINGS = "camera.json"
SOURCE = "SoccerTrack v2 (Scott et al., arXiv 2508.01802), CC BY 4.0; cropped and scaled by ballcast"
MISFIT = 0.02  # of the panorama's width: the largest median error of the players' places for the ball to be believed

Steering = Literal["auto", "ball", "players"]
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class CameraSettings:
    """Of all videos of a folder.

    Attributes:
        width, height: of the videos, even numbers.
        view: share of the panorama's width that is seen.
        steer: by the ball, by the mean of the players, or "auto": by the ball where it can be found.
        offset_ms: see `read_events`.
    """

    width: int = 398
    height: int = 224
    view: float = 0.33
    steer: Steering = "auto"
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if self.width % 2 or self.height % 2 or min(self.width, self.height) < 2:
            raise InputError(f"--size {self.width}x{self.height}: width and height must be even numbers")
        if not 0 < self.view <= 1:
            raise InputError(f"--view {self.view}: must be above 0 and at most 1")


def convert_soccertrack(
    folder: Path,
    out: Path,
    settings: CameraSettings,
    *,
    matches: Sequence[str] = (),
    log: Callable[[str], object] = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Write the videos and labels of SoccerTrack v2's matches.

    Args:
        folder: SoccerTrack v2, as downloaded.
        out: the folder to write to.
        settings: of the camera; a folder has one.
        matches: their numbers; empty: all but the one with a faulty calibration, 132831.
        log: called with a line for each half.
        progress: called with the frames of a half that are done, and in all.

    Returns:
        The number of halves in `out`.
    """
    halves = [
        half for half in find_halves(folder, list(matches), offset_ms=settings.offset_ms) if _is_wanted(half, matches)
    ]
    make_parents(out / MATCHES)
    with exclusive_lock(out, out / ".lock", f"{out}: another run is writing to it; let it finish"):
        sweep(out)
        _check_settings(out / SETTINGS, settings)
        entries = _read_entries(out)
        for half in halves:
            video = out / f"{half.name}.mp4"
            if video.name in entries and video.is_file():
                continue
            entries[video.name] = _convert_half(half, video, settings, log, progress)
            write_json(out / MATCHES, [entries[name] for name in sorted(entries, key=natural)])
    return len(entries)


def _convert_half(
    half: Half, video: Path, settings: CameraSettings, log: Callable[[str], object], progress: Progress
) -> Any:
    """Write the video of a half; returns its entry in `matches.json`."""
    with VideoFile(half.video) as source:
        panorama, count = source.size, source.frame_count()
    target, by = steering_target(half, count or 0, panorama[1], settings.steer)
    size = settings.height, settings.width
    crop = crop_size(panorama, size, settings.view)
    frames = write_crop(half.video, video, follow(target, panorama, crop), crop, size, progress=progress)
    actions = [
        {"label": e.label, "position": e.position_ms, "team": e.team, "visibility": "visible"}
        for e in half.events
        if e.position_ms < frames * FRAME_MS
    ]
    late = len(half.events) - len(actions)
    log(
        f"{video.name}: {frames} frames, steered by the {by}, {len(actions)} actions"
        + (f", {late} after the end of the video left out" if late else "")
    )
    return {"video": video.name, "split": half.split, "frames": frames, "steered_by": by, "actions": actions}


def steering_target(half: Half, frames: int, width: int, steer: Steering) -> tuple[NDArray[np.float64], str]:
    """Find what the camera follows.

    Args:
        half: the half.
        frames: of its video.
        width: of the panorama.
        steer: see `CameraSettings`.

    Returns:
        (frames, 2) x and y in the panorama, NaN where unknown; and "ball" or "players".
    """
    tracks = read_tracks(half.tracks)
    frames = max(frames, int(tracks.frame.max()) + 1)
    if steer != "players":
        try:
            return _find_ball(half, tracks, frames, width), "ball"
        except InputError as error:
            if steer == "ball":
                raise InputError(f"{error}; steer by the players") from None
            warnings.warn(f"{error}, so the camera is steered by the players", BallcastWarning, stacklevel=2)
    return player_mean(tracks, frames), "players"


def _find_ball(half: Half, tracks: Tracks, frames: int, width: int) -> NDArray[np.float64]:
    """Return the ball's place in the panorama, (frames, 2); an InputError if it cannot be found."""
    target = ball_in_picture(tracks, frames)
    if target is None:
        if not half.ball.is_file():
            raise InputError(f"{half.tracks}: has no ball, and there is no {half.ball.name}")
        target, error = project(tracks, read_ball(half.ball, half.number), frames)
        if error > MISFIT * width:
            raise InputError(
                f"{half.tracks}: places on the pitch and in the picture do not agree ({error:.0f} pixels apart)"
            )
    return target


def _is_wanted(half: Half, matches: Sequence[str]) -> bool:
    if half.match in FAULTY and half.number == 1:
        left = (
            "the camera may look elsewhere"
            if half.match in matches
            else "it is left out; name it with --match to have it"
        )
        warnings.warn(f"match {half.match} has a faulty calibration: {left}", BallcastWarning, stacklevel=3)
    return half.match not in FAULTY or half.match in matches


def _check_settings(path: Path, settings: CameraSettings) -> None:
    """Write the settings of a new folder; an InputError if the folder has others."""
    wanted = {"source": SOURCE, **asdict(settings)}
    if not path.is_file():
        write_json(path, wanted, indent=1)
    elif read_json(path, "camera's settings") != wanted:
        raise InputError(f"{path.parent}: was made with other settings ({path.name}); choose another folder")


def _read_entries(out: Path) -> dict[str, Any]:
    """Read `matches.json` as it is, by the name of the video."""
    path = out / MATCHES
    if not path.is_file():
        return {}
    entries = read_json(path, "matches")
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("video"), str) for e in entries
    ):
        raise InputError(f"{path}: is not what this command writes; choose another folder")
    return {entry["video"]: entry for entry in entries}

"""SoccerTrack v2: its labels, and where its players and the ball are in the panorama.

The layout is that of its repository (github.com/AtomScott/SoccerTrack-v2, docs/format-bas.md and docs/format-gsr.md),
as designed and as its files are: events under "annotations" or "actions", labels in title case or capitals; game states
as a list of flat records or as SoccerNet's `Labels-GameState.json`. There is no ball in the game states, but in
`raw/ID/ID_tracker_box_data.xml`.
"""

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ballcast.core.actions import FPS, FRAME_MS
from ballcast.core.checks import Defects, finite, get, show, whole_number
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, reading
from ballcast.core.util import natural
from ballcast.data.labels.games import in_order
from ballcast.data.labels.label_sets import BALL_ACTIONS

HALVES = {1: "1st", 2: "2nd"}
PERIODS = {"FIRST_HALF": 1, "SECOND_HALF": 2}
SPLITS = {  # of the SoccerTrack Challenge 2025; its repository validates on 117093 and 132877
    **dict.fromkeys(("117093", "132877"), "valid"),
    **dict.fromkeys(("128057", "132831"), "test"),
}
FAULTY = {"132831"}  # its calibration had two points exchanged, so its boxes are not where the players are
HALF_MS = 45 * 60_000
PITCH = np.array([105.0, 68.0])  # m
LONGEST_HALF = 2 * 3600 * FPS  # frames
FARTHEST = 10**6  # frames, pixels or m: what is farther is not of a half
CHUNK = 1 << 22  # characters read at a time
LONGEST = 1 << 26  # characters that one record may have


@dataclass(frozen=True, slots=True)
class BallEvent:
    """An action: one of `BALL_ACTIONS`, its time in ms from the first frame of its half's video, and its team."""

    label: str
    position_ms: int
    team: str


@dataclass(frozen=True)
class Half:
    """A half of a match: number 1 or 2, its files, and its events by time."""

    match: str
    number: int
    video: Path
    tracks: Path
    ball: Path
    events: tuple[BallEvent, ...]

    @property
    def name(self) -> str:
        return f"{self.match}_{self.number}"

    @property
    def split(self) -> str:
        return SPLITS.get(self.match, "train")


@dataclass(frozen=True)
class Tracks:
    """Where people and the ball are in a half; one row for each of them and each frame.

    Attributes:
        frame: (n,) frame of the half's video, from 0.
        pixel: (n, 2) x of the box's middle and y of its bottom, in the panorama.
        pitch: (n, 2) x and y in m from the middle of the pitch; NaN where not given.
        ball: (n,) whether it is the ball.
    """

    frame: NDArray[np.int64]
    pixel: NDArray[np.float64]
    pitch: NDArray[np.float64]
    ball: NDArray[np.bool_]


def find_halves(folder: Path, matches: list[str], *, offset_ms: int = 0) -> list[Half]:
    """Find the halves of SoccerTrack v2 that have a video.

    Args:
        folder: with `videos/`, `bas/` and `gsr/`.
        matches: their numbers; empty: all.
        offset_ms: see `read_events`.
    """
    known = sorted((p.name for p in (folder / "bas").glob("*") if p.is_dir()), key=natural)
    if not known:
        raise InputError(f"{folder}: has no matches in bas/; fetch them with `ballcast download soccertrack`")
    for match in matches:
        if match not in known:
            raise InputError(f"{folder}: has no match {match!r}; there are {', '.join(known)}")
    found = []
    for match in matches or known:
        events = read_events(folder / "bas" / match / f"{match}_12_class_events.json", offset_ms=offset_ms)
        for number, name in HALVES.items():
            video = folder / "videos" / match / f"{match}_panorama_{name}_half.mp4"
            tracks = folder / "gsr" / match / f"{match}_{name}.json"
            ball = folder / "raw" / match / f"{match}_tracker_box_data.xml"
            if video.is_file():
                found.append(Half(match, number, video, tracks, ball, events[number]))
    if not found:
        raise InputError(f"{folder}: has no video like videos/{known[0]}/{known[0]}_panorama_1st_half.mp4")
    return found


def read_events(path: Path, *, offset_ms: int = 0) -> dict[int, tuple[BallEvent, ...]]:
    """Read the events of a match.

    The time of an event is its "frame", counted from 1, where it has one (since release 1.2). Else it is its
    "position", which counts from the half's kick-off, as documented, or from that of the match, as in the files before
    release 1.2; that is so if no event of the second half is before 40:00. Then 45 minutes are taken off.

    Args:
        path: `ID_12_class_events.json`.
        offset_ms: for events without a frame: ms of the half that the video lacks at its start. The documentation
            gives none; its repository has measured up to 1.2 s (results/gsr/frame_offsets_all_halves.csv).

    Returns:
        Half (1 or 2) → its events by time. Events without a half in "gameTime", those of a third period that was not
        filmed, and events before the first frame are left out.
    """
    tree, defects = read_json(path, "labels"), Defects(str(path), strict=True)
    key = next((key for key in ("actions", "annotations") if isinstance(tree, dict) and key in tree), "actions")
    with defects.at(""):
        records = get(tree, key, list, "a list")
    rows = []
    for i, record in enumerate(records):
        with defects.at(f"{key}[{i}]"):
            rows.append(_event(record))
    clock = [ms for half, ms, timed, *_ in rows if half == 2 and not timed]
    absolute = bool(clock) and min(clock) >= 40 * 60_000
    halves: dict[int, list[BallEvent]] = {1: [], 2: []}
    for half, ms, timed, label, team in rows:
        start = 0 if timed else offset_ms + (HALF_MS if absolute and half == 2 else 0)
        if half in halves and ms >= start:
            halves[half].append(BallEvent(label, ms - start, team))
    return {half: in_order(events) for half, events in halves.items()}


def _event(record: Any) -> tuple[int | None, int, bool, str, str]:
    """Half (None: not given), ms, whether they are from a frame, label and team of a record."""
    label = get(record, "label", str, "text").upper()
    if label not in BALL_ACTIONS:
        raise InputError(f"unknown label {label!r}; the labels are {', '.join(BALL_ACTIONS)}")
    half = re.match(r"\s*([12])\s*-", get(record, "gameTime", str, "text"))
    team = record.get("team")
    framed = record.get("frame") is not None
    ms = (whole_number(record, "frame") - 1) * FRAME_MS if framed else whole_number(record, "position")
    return int(half[1]) if half else None, ms, framed, label, team if isinstance(team, str) else ""


def read_tracks(path: Path) -> Tracks:
    """Read the game states of a half, record by record: the files have 2.7 GB.

    Players and the ball are kept; goalkeepers, referees and others do not show where the play is.
    """
    defects = Defects(str(path), strict=True)
    values = array("d")  # a half has 1.5 million rows
    for i, record in enumerate(iterate_records(path)):
        with defects.at(f"record {i}"):
            if (row := _track(record)) is not None:
                values.extend(row)
    if not values:
        raise InputError(f"{path}: has no players with a 'bbox_image'; fetch it again")
    table = np.array(values).reshape(-1, 6)
    return Tracks(table[:, 0].astype(np.int64), table[:, 1:3], table[:, 3:5], table[:, 5] > 0)


def _track(record: Any) -> tuple[float, float, float, float, float, float] | None:
    """Frame, x, y in the picture, x, y on the pitch, and 1 for the ball; None: not a player with a box."""
    if not isinstance(record, dict) or record.get("bbox_image") is None:
        return None
    attributes = record.get("attributes")
    role = (attributes if isinstance(attributes, dict) else record).get("role")
    if role not in ("player", "ball"):
        return None
    number = whole_number(record, "image_id")
    # As text it is a number of the sequence and six digits that count from 1; as a number it counts from 0.
    frame = number % 10**6 - 1 if isinstance(record["image_id"], str) else number
    box = record["bbox_image"]
    sides = [box.get(k) for k in "xywh"] if isinstance(box, dict) else box
    if not isinstance(sides, list) or len(sides) != 4:
        raise InputError(f"'bbox_image' is {show(box)} instead of x, y, width and height")
    x, y, w, h = (finite(v, "bbox_image") for v in sides)
    place = record.get("bbox_pitch")
    names = ("x_bottom_middle", "y_bottom_middle")
    pitch = [place.get(k) for k in names] if isinstance(place, dict) else [record.get("x"), record.get("y")]
    across, along = (np.nan if v is None else finite(v, "bbox_pitch") for v in pitch)
    if any(abs(v) > FARTHEST for v in (frame, x, y, w, h, across, along)):  # never of NaN
        raise InputError("'image_id', 'bbox_image' or 'bbox_pitch' is far outside of any video and pitch")
    return frame, x + w / 2, y + h, across, along, float(role == "ball")


def iterate_records(path: Path) -> Iterator[Any]:
    """Yield the records of a JSON list, or of the list "annotations" of a JSON object, without reading it whole."""
    with reading(path, "game states"), path.open(encoding="utf-8") as file:
        try:
            yield from _records(file, path)
        except UnicodeDecodeError:
            raise InputError(f"{path}: the game states are not UTF-8; is this the right file?") from None


def _records(file: TextIO, path: Path) -> Iterator[Any]:
    cut = InputError(f"{path}: the file ends too early or is not valid JSON; fetch it again")
    decoder, text, at = json.JSONDecoder(), file.read(CHUNK).lstrip(), 0
    begin = re.compile(r"\[" if text.startswith("[") else r'"annotations"\s*:\s*\[')
    while (found := begin.search(text)) is None:
        more = file.read(CHUNK)
        if not more:
            raise InputError(f"{path}: has no list 'annotations'; is this the right file?")
        text = text[-40:] + more
    at = found.end()
    skip = re.compile(r"[\s,]*")
    while True:
        at = skip.match(text, at).end()  # type: ignore[union-attr]  # matches always
        if text.startswith("]", at):
            return
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            more = file.read(CHUNK)
            if not more or len(text) - at > LONGEST:
                raise cut from None
            text, at = text[at:] + more, 0
            continue
        except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists
            raise cut from None
        yield record


def read_ball(path: Path, half: int) -> NDArray[np.float64]:
    """Read the ball of a half from the tracker's file.

    Returns:
        (T, 2) x and y in m from the middle of the pitch, frame by frame from the first of the half; NaN: not given.
        Which touchline is at positive y differs between matches. The tracker's first frame is up to 1.2 s before the
        video's: enough to steer a camera, not to time a pass.
    """
    frame = r'<frame [^>]*frameNumber="(\d{1,9})"[^>]*eventPeriod="(\w+)"'
    tag = re.compile(frame + r'|<ball [^>]*loc="\[([^,"]+), ?([^\]"]+)\]"')
    places: dict[int, tuple[float, float]] = {}
    number, left = None, ""
    with reading(path, "tracker's data"), path.open(encoding="utf-8", errors="replace") as file:
        while chunk := file.read(CHUNK):
            text, _, rest = (left + chunk).rpartition("<")
            left = f"<{rest}"
            for found in tag.finditer(text):
                if found[1]:
                    number = int(found[1]) if PERIODS.get(found[2]) == half else None
                elif number is not None:
                    try:
                        places[number] = (float(found[3]), float(found[4]))
                    except ValueError:
                        continue  # "None", where the ball was not seen
    if not places:
        raise InputError(f"{path}: has no ball in half {half}")
    first = min(places)
    if max(places) - first >= LONGEST_HALF:
        raise InputError(f"{path}: half {half} has frames {first} to {max(places)}, which is no half; fetch it again")
    ball = np.full((max(places) - first + 1, 2), np.nan)
    ball[np.array(list(places)) - first] = (np.array(list(places.values())) - 0.5) * PITCH
    return ball


def player_mean(tracks: Tracks, frames: int) -> NDArray[np.float64]:
    """Return the mean place of the players in the picture, (frames, 2); NaN where there are none."""
    rows = ~tracks.ball & (tracks.frame >= 0) & (tracks.frame < frames)
    count = np.bincount(tracks.frame[rows], minlength=frames)
    sums = [np.bincount(tracks.frame[rows], tracks.pixel[rows, axis], frames) for axis in (0, 1)]
    with np.errstate(invalid="ignore"):
        return np.stack(sums, 1) / np.where(count, count, np.nan)[:, None]


def ball_in_picture(tracks: Tracks, frames: int) -> NDArray[np.float64] | None:
    """Return the ball's place in the picture, (frames, 2), NaN where unknown; None if the game states have no ball."""
    rows = tracks.ball & (tracks.frame >= 0) & (tracks.frame < frames)
    if not rows.any():
        return None
    target = np.full((frames, 2), np.nan)
    target[tracks.frame[rows]] = tracks.pixel[rows]
    return target


def project(tracks: Tracks, ball: NDArray[np.float64], frames: int) -> tuple[NDArray[np.float64], float]:
    """Find the ball in the picture by where players with known places on the pitch are in it.

    A polynomial of third degree from pitch to picture is fitted to the players; no calibration file is needed. The
    ball's y is mirrored if that brings it nearer to the players.

    Args:
        tracks: of the half.
        ball: (T, 2) from `read_ball`.
        frames: of the video.

    Returns:
        (frames, 2) pixels, NaN where unknown; and the median distance in pixels of the players from the polynomial.
    """
    rows = np.flatnonzero(~tracks.ball & ~np.isnan(tracks.pitch).any(1))
    if len(rows) < 100:
        raise InputError("too few players have a place on the pitch to find the ball in the picture")
    some = rows[:: max(len(rows) // 20_000, 1)]
    weights, *_ = np.linalg.lstsq(_terms(tracks.pitch[some]), tracks.pixel[some], rcond=None)
    error = float(np.median(np.linalg.norm(_terms(tracks.pitch[some]) @ weights - tracks.pixel[some], axis=1)))
    placed = np.full((frames, 2), np.nan)
    placed[: min(frames, len(ball))] = ball[:frames]
    mirrored = placed * (1, -1)
    best = min((placed, mirrored), key=lambda places: _distance(tracks, rows, places))
    inside = np.clip(best, -0.6 * PITCH, 0.6 * PITCH)  # a polynomial runs away outside of its data
    return _terms(inside) @ weights, error


def _terms(pitch: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ten products of powers of x and y up to the third degree, (n, 10)."""
    x, y = (pitch / (PITCH / 2)).T
    return np.stack([x**i * y**j for i in range(4) for j in range(4 - i)], 1)


def _distance(tracks: Tracks, rows: NDArray[np.int64], places: NDArray[np.float64]) -> float:
    """Return the median distance in m of the ball from the nearest player, over some 500 frames."""
    order = rows[np.argsort(tracks.frame[rows], kind="stable")]
    starts = np.flatnonzero(np.append(True, np.diff(tracks.frame[order]) > 0)).tolist()
    bounds = list(pairwise([*starts, len(order)]))
    nearest = []
    for start, stop in bounds[:: max(len(bounds) // 500, 1)]:
        frame = tracks.frame[order[start]]
        if 0 <= frame < len(places):
            nearest.append(np.linalg.norm(tracks.pitch[order[start:stop]] - places[frame], axis=1).min())
    return float(np.nanmedian(nearest)) if nearest else np.inf

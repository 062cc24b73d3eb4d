"""SoccerTrack v2 in a made-up copy of its layout: labels, tracks, and a camera that keeps the ball in sight."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import write_video

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.data.labels import soccertrack
from ballcast.data.labels.games import find_games
from ballcast.data.labels.label_sets import BALL_ACTIONS, read_label_set
from ballcast.data.labels.soccertrack import find_halves, iterate_records, read_ball, read_events, read_tracks
from ballcast.video.camera import crop_size, follow
from ballcast.video.file import VideoFile
from ballcast.workflows.soccertrack import CameraSettings, convert_soccertrack

HEIGHT, WIDTH, FRAMES = 160, 600, 100
SETTINGS = CameraSettings(width=96, height=54, view=0.3)


def to_picture(pitch: np.ndarray) -> np.ndarray:
    """A curved view of the pitch, (…, 2) m → (…, 2) pixels; y grows towards the camera."""
    x, y = pitch[..., 0] / 52.5, pitch[..., 1] / 34
    return np.stack([300 + 270 * x * (1 + 0.05 * y), 80 + 50 * y + 15 * (1 - x**2) * y], -1)


def ball_path() -> np.ndarray:
    """(T, 2) m: from end to end and back, faster than any ball."""
    t = np.arange(FRAMES) / FRAMES
    return np.stack([-50 * np.cos(4 * np.pi * t), 25 * np.sin(2 * np.pi * t)], 1)


def players(frame: int) -> np.ndarray:
    """(10, 2) m: one is at the ball, the others stand all over the pitch."""
    others = np.random.default_rng(1).uniform((-52, -33), (52, 33), (9, 2))
    return np.vstack([ball_path()[frame] + 0.5, others + np.random.default_rng(frame).normal(0, 1, (9, 2))])


def draw() -> np.ndarray:
    """(T, H, W) uint8: a dark pitch and a bright ball."""
    pictures = np.full((FRAMES, HEIGHT, WIDTH), 60, np.uint8)
    for frame, (x, y) in enumerate(to_picture(ball_path()).round().astype(int)):
        pictures[frame, max(y - 3, 0) : y + 4, max(x - 3, 0) : x + 4] = 250
    return pictures


def released(frame: int) -> list[dict[str, Any]]:
    """Records of a frame as the released files have them."""
    pixels, image = to_picture(players(frame)), f"3{frame + 1:06}"
    people = [
        {
            "id": "1",
            "image_id": image,
            "track_id": n,
            "supercategory": "object",
            "attributes": {"role": "player", "team": "left", "player_id": n},
            "bbox_image": {"x": u - 5, "y": v - 20, "w": 10, "h": 20},
            "bbox_pitch": {"x_bottom_middle": x, "y_bottom_middle": y},
        }
        for n, ((u, v), (x, y)) in enumerate(zip(pixels.tolist(), players(frame).tolist(), strict=True))
    ]
    keeper = {**people[0], "attributes": {"role": "goalkeeper"}, "bbox_image": {"x": 0, "y": 0, "w": 1, "h": 1}}
    return [
        {"image_id": image, "supercategory": "pitch", "lines": {"Side line top": [{"x": 0.1, "y": 0.1}]}},
        keeper,
        *people,
    ]


def documented(frame: int, ball: bool = False) -> list[dict[str, Any]]:
    """Records of a frame as docs/format-gsr.md has them."""
    pixels = to_picture(players(frame)).tolist()
    people = [
        {"image_id": frame, "track_id": n, "role": "player", "x": 0.0, "y": 0.0, "bbox_image": [u - 5, v - 20, 10, 20]}
        for n, (u, v) in enumerate(pixels)
    ]
    u, v = to_picture(ball_path()[frame]).tolist()
    return (
        [*people, {"image_id": frame, "track_id": 99, "role": "ball", "bbox_image": [u - 2, v - 4, 4, 4]}]
        if ball
        else people
    )


def tracker_xml(*, mirrored: bool) -> str:
    """Both halves, numbered from 251, the ball where the tracker saw it."""
    lines = ['<?xml version="1.0"?>', "<tracking>"]
    for period in ("FIRST_HALF", "SECOND_HALF"):
        for frame, (x, y) in enumerate(ball_path()):
            loc = f"[{x / 105 + 0.5:.4f}, {(-y if mirrored else y) / 68 + 0.5:.4f}]"
            lines.append(f'<frame matchTime="0" frameNumber="{251 + frame}" eventPeriod="{period}" ballStatus="HOME">')
            lines.append('<player playerId="7" loc="[0.5, 0.5]" speed="1"/>')
            lines.append(f'<ball playerId="ball" loc="{loc}" speed="1"/></frame>')
    return "\n".join([*lines, "</tracking>"])


def action(label: str, half: str, position: int, **more: Any) -> dict[str, Any]:
    return {"gameTime": f"{half}00:12", "position": str(position), "label": label, "team": "left", **more}


EVENTS = [
    action("PASS", "1 - ", 400, frame=11),
    action("FREE KICK", "1 - ", 2000, frame=51),
    action("GOAL", "2 - ", 2_700_800, frame=21),
    action("SHOT", "2 - ", 8_127_120, frame=200_000),  # of a third period, with the wrong half
    action("SHOT", "", 8_127_120),
]


def make(folder: Path, match: str, gsr: Any, *, halves: tuple[str, ...] = ("1st", "2nd"), xml: str = "") -> Path:
    """A match in the layout of SoccerTrack v2."""
    for half in halves:
        write_video(folder / "videos" / match / f"{match}_panorama_{half}_half.mp4", draw())
        path = folder / "gsr" / match / f"{match}_{half}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(gsr))
    (folder / "bas" / match).mkdir(parents=True, exist_ok=True)
    (folder / "bas" / match / f"{match}_12_class_events.json").write_text(json.dumps({"actions": EVENTS}))
    if xml:
        (folder / "raw" / match).mkdir(parents=True, exist_ok=True)
        (folder / "raw" / match / f"{match}_tracker_box_data.xml").write_text(xml)
    return folder


def released_file() -> dict[str, Any]:
    records = [record for frame in range(FRAMES) for record in released(frame)]
    return {"info": {"version": "1.3"}, "images": [{"image_id": "3000001"}], "annotations": records, "categories": []}


def balls_seen(video: Path) -> int:
    """In how many frames of a video there is a bright spot."""
    with VideoFile(video) as file:
        frames = file.read(0, FRAMES)
    assert frames.shape == (FRAMES, 54, 96)
    return int((frames.reshape(FRAMES, -1).max(1) > 150).sum())


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_ball_stays_in_sight(tmp_path: Path, mirrored: bool) -> None:
    """Steered by the tracker's ball, through places fitted to the players, whichever way its y grows."""
    source = make(tmp_path / "in", "117092", released_file(), xml=tracker_xml(mirrored=mirrored))
    lines: list[str] = []
    assert convert_soccertrack(source, tmp_path / "out", SETTINGS, log=lines.append) == 2
    assert [balls_seen(tmp_path / "out" / f"117092_{half}.mp4") for half in (1, 2)] == [FRAMES, FRAMES]
    assert lines[0] == f"117092_1.mp4: {FRAMES} frames, steered by the ball, 2 actions"
    assert lines[1].endswith("1 actions, 1 after the end of the video left out")


def test_the_folder_is_read_like_simulated_matches(tmp_path: Path) -> None:
    """Ten actions for anticipation, twelve for spotting; the splits of its challenge."""
    source = make(tmp_path / "in", "117093", [r for f in range(FRAMES) for r in documented(f, ball=True)])
    convert_soccertrack(source, tmp_path / "out", SETTINGS)
    games = find_games(tmp_path / "out")
    assert [(g.name, g.split, g.segments[0].stop) for g in games] == [
        ("117093_1", "valid", FRAMES),
        ("117093_2", "valid", FRAMES),
    ]
    assert [(e.label, e.position_ms, e.team) for e in games[0].events] == [("PASS", 400, "left")]
    found = read_label_set(tmp_path / "out")
    assert found.labels == BALL_ACTIONS
    assert found.actions[0].tolist() == [[400, 0], [2000, 10]]
    assert found.actions[1].tolist() == [[800, 11]]
    assert balls_seen(tmp_path / "out" / "117093_1.mp4") == FRAMES  # the ball of the game states


def test_without_a_ball_the_players_steer(tmp_path: Path) -> None:
    records = [record for frame in range(FRAMES) for record in documented(frame)]
    source = make(tmp_path / "in", "117092", records, halves=("1st",))
    lines: list[str] = []
    with pytest.warns(BallcastWarning, match=r"has no ball, and there is no 117092_tracker_box_data\.xml"):
        convert_soccertrack(source, tmp_path / "out", SETTINGS, log=lines.append)
    assert "steered by the players" in lines[0]
    assert balls_seen(tmp_path / "out" / "117092_1.mp4") < FRAMES  # nine of ten stand still, so it is often elsewhere
    with pytest.raises(InputError, match="steer by the players"):
        convert_soccertrack(source, tmp_path / "b", CameraSettings(96, 54, 0.3, "ball"))


def test_places_that_do_not_agree_are_not_believed(tmp_path: Path) -> None:
    gsr = released_file()
    rng = np.random.default_rng(0)
    for record in gsr["annotations"]:
        if "bbox_image" in record:
            record["bbox_image"]["x"] = float(rng.uniform(0, WIDTH))
    source = make(tmp_path / "in", "117092", gsr, halves=("1st",), xml=tracker_xml(mirrored=False))
    with pytest.warns(BallcastWarning, match="do not agree"):
        convert_soccertrack(source, tmp_path / "out", SETTINGS)


def test_finished_halves_are_kept_and_settings_not_mixed(tmp_path: Path) -> None:
    source = make(tmp_path / "in", "117092", released_file(), halves=("1st",), xml=tracker_xml(mirrored=False))
    out = tmp_path / "out"
    convert_soccertrack(source, out, SETTINGS)
    before = (out / "117092_1.mp4").stat()
    make(tmp_path / "in", "117092", released_file(), halves=("2nd",))
    assert convert_soccertrack(source, out, SETTINGS) == 2
    assert (out / "117092_1.mp4").stat() == before
    assert [e["video"] for e in json.loads((out / "matches.json").read_text())] == ["117092_1.mp4", "117092_2.mp4"]
    with pytest.raises(InputError, match="was made with other settings"):
        convert_soccertrack(source, out, CameraSettings(96, 54, 0.5))
    (source / "videos" / "117092" / "117092_panorama_2nd_half.mp4").write_bytes(b"no video")
    (out / "117092_2.mp4").unlink()
    with pytest.raises(InputError, match="117092_panorama_2nd_half"):
        convert_soccertrack(source, out, SETTINGS)
    assert not (out / "117092_2.mp4").exists()


def test_the_match_with_the_faulty_calibration_is_left_out(tmp_path: Path) -> None:
    source = make(tmp_path / "in", "132831", released_file(), halves=("1st",), xml=tracker_xml(mirrored=True))
    with pytest.warns(BallcastWarning, match="132831 has a faulty calibration: it is left out"):
        assert convert_soccertrack(source, tmp_path / "out", SETTINGS) == 0
    with pytest.warns(BallcastWarning, match="the camera may look elsewhere"):
        assert convert_soccertrack(source, tmp_path / "out", SETTINGS, matches=["132831"]) == 1


def test_the_camera_does_not_look_ahead() -> None:
    target = np.array([300, 80]) + np.cumsum(np.random.default_rng(0).normal(0, 30, (200, 2)), 0)
    target[50:60] = np.nan
    changed = target.copy()
    changed[120:] = (590, 10)
    crop = crop_size((HEIGHT, WIDTH), (54, 96), 0.3)
    one, other = (follow(t, (HEIGHT, WIDTH), crop) for t in (target, changed))
    assert np.array_equal(one[:120], other[:120])
    assert not np.array_equal(one[120:], other[120:])
    assert (one[50:60] == one[49]).all()  # where nothing is known, it rests
    assert one.min() >= 0
    assert (one[:, 0] <= WIDTH - crop[1]).all()
    assert (one[:, 1] <= HEIGHT - crop[0]).all()
    still = follow(np.full((100, 2), 300.0) + np.random.default_rng(0).normal(0, 2, (100, 2)), (HEIGHT, WIDTH), crop)
    assert len(np.unique(still, axis=0)) == 1  # a trembling target does not move it


def test_crops_have_the_shape_of_the_video() -> None:
    assert crop_size((1080, 4096), (224, 398), 0.33) == (760, 1350)
    assert crop_size((300, 4096), (224, 398), 0.33) == (300, 532)  # no higher than the panorama


@pytest.mark.parametrize(
    ("events", "offset_ms", "expected"),
    [
        # as documented: in title case, from each half's kick-off
        ([action("Pass", "1 - ", 400), action("High Pass", "2 - ", 800)], 0, ([("PASS", 400)], [("HIGH PASS", 800)])),
        # as in the files before release 1.2: from the match's
        (
            [action("PASS", "1 - ", 2_800_000), action("DRIVE", "2 - ", 2_700_760)],
            0,
            ([("PASS", 2_800_000)], [("DRIVE", 760)]),
        ),
        ([action("PASS", "1 - ", 400), action("DRIVE", "2 - ", 2_701_760)], 1000, ([], [("DRIVE", 760)])),
        # since release 1.2: with the frame
        (
            [action("PASS", "1 - ", 99, frame=1), action("DRIVE", "2 - ", 2_700_000, frame=5)],
            1000,
            ([("PASS", 0)], [("DRIVE", 160)]),
        ),
        ([action("PASS", "", 5_500_000)], 0, ([], [])),
    ],
)
def test_clocks(tmp_path: Path, events: list[Any], offset_ms: int, expected: Any) -> None:
    path = tmp_path / "1_12_class_events.json"
    for key in ("annotations", "actions"):
        path.write_text(json.dumps({key: events}))
        halves = read_events(path, offset_ms=offset_ms)
        assert tuple([(e.label, e.position_ms) for e in halves[half]] for half in (1, 2)) == expected


@pytest.mark.parametrize("wrong", [{"label": "Dribble"}, {"position": "soon"}, {"gameTime": 3}])
def test_bad_labels_name_their_place(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps({"actions": [action("Pass", "1 - ", 3), {**action("Pass", "1 - ", 3), **wrong}]})
    )
    with pytest.raises(InputError, match=r"a\.json: actions\[1\]"):
        read_events(tmp_path / "a.json")


def test_long_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, xml = tmp_path / "a.json", tmp_path / "a.xml"
    path.write_text(json.dumps(released_file()))
    xml.write_text(tracker_xml(mirrored=False))
    whole, ball = list(iterate_records(path)), read_ball(xml, 2)
    assert len(whole) == 12 * FRAMES
    assert np.abs(ball - ball_path()).max() < 0.01
    monkeypatch.setattr(soccertrack, "CHUNK", 97)
    assert list(iterate_records(path)) == whole
    assert np.array_equal(read_ball(xml, 2), ball)
    assert read_tracks(path).frame.tolist() == [frame for frame in range(FRAMES) for _ in range(10)]


@pytest.mark.parametrize("text", ['{"annotations": [{"a": 1}, {"b"', "[{]", '{"frames": []}', "[1, ", "[]"])
def test_broken_game_states_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"a\.json: "):
        read_tracks(tmp_path / "a.json")


@pytest.mark.parametrize("box", [[1, 2, 3], "far left", {"x": 1, "y": None, "w": 3, "h": 4}])
def test_a_bad_box_names_its_place(tmp_path: Path, box: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{**documented(0)[0], "bbox_image": box}]))
    with pytest.raises(InputError, match=r"a\.json: record 0: 'bbox_image'"):
        read_tracks(tmp_path / "a.json")


def test_what_is_not_the_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ballcast download soccertrack"):
        find_halves(tmp_path, [])
    make(tmp_path, "117092", [], halves=())
    with pytest.raises(InputError, match="has no video like"):
        find_halves(tmp_path, [])
    with pytest.raises(InputError, match="has no match '5'; there are 117092"):
        find_halves(tmp_path, ["5"])
    for wrong in ({"width": 97}, {"view": 0.0}, {"view": float("nan")}):
        with pytest.raises(InputError, match="--"):
            CameraSettings(**wrong)


def test_the_command(ballcast: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    source = make(tmp_path / "in", "117092", released_file(), halves=("1st",), xml=tracker_xml(mirrored=False))
    done = ballcast("data", "soccertrack", source, tmp_path / "out", "--size", "96x54", "--view", 0.3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("out: 1 halves")
    assert balls_seen(tmp_path / "out" / "117092_1.mp4") == FRAMES
    failed = ballcast("data", "soccertrack", source, tmp_path / "b", "--size", "own")
    assert failed.returncode == 2
    assert "give a width and a height" in failed.stderr

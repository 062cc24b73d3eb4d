"""Labels and folders of SN-BAA: read, written, and every defect with its place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.actions import ACTIONS
from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event
from ballcast.data.labels.soccernet import OFFICIAL_CLIPS, Split, check, count_deviations, read_labels, write_labels


def labels(**changes: Any) -> dict[str, Any]:
    """One clip with one event to anticipate, changed as asked."""
    event = {"label": "PASS", "position": "31560", "team": "home", "visibility": "visible", **changes}
    event = {k: v for k, v in event.items() if v is not ...}
    return {
        "version": "1.0",
        "date": "2025.06.06",
        "videos": [
            {
                "annotations": {"observation": [], "anticipation": [event]},
                "path": "clip_1/720p.mp4",
                "input_type": "video",
            }
        ],
    }


def write(path: Path, tree: Any) -> Path:
    path.write_text(json.dumps(tree))
    return path


def events(begin: int, end: int) -> st.SearchStrategy[tuple[Event, ...]]:
    event = st.builds(
        Event, st.sampled_from(ACTIONS), st.integers(begin, end), st.sampled_from(["home", "away"]), st.booleans()
    )
    return st.lists(event, max_size=5).map(tuple)


@given(st.lists(st.tuples(events(0, 30000), events(30000, 35000)), max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, content: list[Any]) -> None:
    path = tmp_path_factory.mktemp("labels") / "Labels-ball.json"
    clips = [Clip(f"clip_{i + 1}", *parts) for i, parts in enumerate(content)]
    write_labels(path, clips)
    assert read_labels(path) == clips


def test_spotting_labels_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "l.json", labels(label="FREE KICK"))
    assert read_labels(path) == [Clip("clip_1")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": "PAS"}, "unknown label 'PAS' (did you mean 'PASS'?)"),
        ({"label": 3}, "'label' is 3 instead of text"),
        ({"position": "soon"}, "'position' is 'soon' instead of a whole number"),
        ({"position": None}, "'position' is None instead of a whole number"),
        ({"position": ...}, "has no 'position'"),
        ({"position": "29000"}, "position 29000 is outside 30000–35000"),
        ({"visibility": "hidden"}, "visibility 'hidden' is neither"),
        ({"visibility": []}, "'visibility' is a list instead of text"),
    ],
)
def test_a_bad_event_is_named_with_its_place(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "Labels-ball.json", labels(**changes))
    with pytest.raises(InputError) as caught:
        read_labels(path)
    assert str(caught.value).startswith(f"{path}: videos[0].annotations.anticipation[0]: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("tree", [[], {}, {"videos": 3}, {"videos": [3]}, {"videos": [{"path": "clip_1"}]}, "x", None])
def test_another_file_is_an_error_not_a_traceback(tmp_path: Path, tree: Any) -> None:
    with pytest.raises(InputError, match=r"l\.json: "):
        read_labels(write(tmp_path / "l.json", tree))


def test_labels_without_an_observation_have_no_observed_events(tmp_path: Path) -> None:
    tree = labels()
    del tree["videos"][0]["annotations"]["observation"]
    assert read_labels(write(tmp_path / "l.json", tree)) == [Clip("clip_1", (), (Event("PASS", 31560, "home"),))]
    tree["videos"][0]["annotations"]["observation"] = None
    with pytest.raises(InputError, match="'observation' is None instead of a list"):
        read_labels(write(tmp_path / "l.json", tree))
    tree = labels()
    del tree["videos"][0]["annotations"]["anticipation"]
    with pytest.raises(InputError, match="has no 'anticipation'"):
        read_labels(write(tmp_path / "l.json", tree))


@pytest.fixture
def snbaa(tmp_path: Path) -> Path:
    """A small SN-BAA: two labelled splits and a blind one, with stand-ins for the videos (never opened here)."""
    root = tmp_path / "snbaa"
    for split, count in (("train", 11), ("test", 2), ("challenge", 3)):
        folder = root / "224p" / split
        for n in range(1, count + 1):
            (folder / f"clip_{n}").mkdir(parents=True)
            (folder / f"clip_{n}" / "224p.mp4").write_bytes(b"video")
        if split != "challenge":
            clips = [Clip(f"clip_{n}", (Event("PASS", 100),), (Event("SHOT", 31000),)) for n in range(1, count + 1)]
            write_labels(folder / "Labels-ball.json", clips)
    return root


def test_check_counts_clips_and_actions(snbaa: Path) -> None:
    train, test, challenge = check(snbaa)
    assert [s.name for s in (train, test, challenge)] == ["train", "test", "challenge"]
    assert (len(train.clips), train.videos, train.counts("anticipation")[6], train.counts("observation")[0]) == (
        11,
        11,
        11,
        11,
    )
    assert [s.defects for s in (train, test, challenge)] == [(), (), ()]
    assert not challenge.labelled
    assert [c.name for c in read_labels(snbaa / "224p" / "challenge")] == ["clip_1", "clip_2", "clip_3"]
    assert check(snbaa / "224p")[0].name == check(snbaa / "224p" / "train")[0].name == "train"


def test_numbers_of_clips_are_compared_with_the_official_ones(snbaa: Path, ballcast: Callable[..., Any]) -> None:
    assert OFFICIAL_CLIPS == {"train": 4587, "valid": 1169, "test": 2376, "challenge": 2262}

    def split(name: str, count: int) -> Split:
        return Split(name, Path("224p") / name, tuple(Clip(f"clip_{n}") for n in range(count)), count, ())

    assert count_deviations([split(name, count) for name, count in OFFICIAL_CLIPS.items()]) == []
    assert count_deviations([split("mine", 3)]) == []
    less, more = count_deviations([split("valid", 1168), split("test", 2377)])
    assert less == "224p/valid: 1168 clips, where SN-BAA's valid split has 1169; a subset, or not all unpacked?"
    assert more == "224p/test: 2377 clips, where SN-BAA's test split has 2376; not the official split?"

    done, strict = ballcast("data", "check", snbaa), ballcast("data", "check", snbaa, "--strict")
    assert done.returncode == 0, done.stderr
    assert "train: 11 clips, where SN-BAA's train split has 4587" in done.stdout
    assert "no defects" in done.stdout
    assert "are SN-BAA's" not in done.stdout
    assert strict.returncode == 1
    assert strict.stdout == done.stdout


def test_check_names_every_defect(snbaa: Path, ballcast: Callable[..., Any]) -> None:
    test = snbaa / "224p" / "test"
    tree = json.loads((test / "Labels-ball.json").read_text())
    tree["videos"][0]["annotations"]["anticipation"][0]["label"] = "SHOOT"
    tree["videos"][0]["annotations"]["observation"][0]["position"] = "x"
    tree["videos"].append(tree["videos"][1])
    tree["videos"].append({**tree["videos"][1], "path": "clip_7/224p.mp4"})
    (test / "Labels-ball.json").write_text(json.dumps(tree))
    (test / "clip_1" / "224p.mp4").write_bytes(b"")
    (test / "clip_2" / "224p.mp4").unlink()
    (test / "clip_3").mkdir()
    done = ballcast("data", "check", snbaa)
    assert done.returncode == 1, done.stderr
    for words in (
        "videos[0].annotations.anticipation[0]: unknown label 'SHOOT'",
        "videos[0].annotations.observation[0]: 'position' is 'x'",
        "videos[2]: clip_2 appears a second time",
        "clip_7: is in the labels but has no folder",
        "clip_1/224p.mp4: is empty",
        "clip_2: holds no 224p.mp4",
        "clip_3: has a folder but no labels",
        "8 defect(s)",
    ):
        assert words in done.stdout, (words, done.stdout)


def test_check_survives_a_truncated_label_file(snbaa: Path) -> None:
    path = snbaa / "224p" / "test" / "Labels-ball.json"
    path.write_bytes(path.read_bytes()[:-20])
    test = next(s for s in check(snbaa) if s.name == "test")
    assert any("ends too early" in d.message for d in test.defects)


@pytest.mark.parametrize("place", ["nowhere", ""])
def test_a_folder_without_a_split_is_named(
    tmp_path: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None], place: str
) -> None:
    clean_failure(ballcast("data", "check", tmp_path / place), str(tmp_path / place))


def test_defects_come_in_the_order_of_the_clips(snbaa: Path) -> None:
    for number in (21, 11, 100, 12, 3):
        (snbaa / "224p" / "test" / f"clip_{number}").mkdir()
    test = next(s for s in check(snbaa) if s.name == "test")
    unlabelled = [d.place for d in test.defects if "has a folder but no labels" in d.message]
    assert unlabelled == ["clip_3", "clip_11", "clip_12", "clip_21", "clip_100"]

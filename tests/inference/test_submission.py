"""Submissions: read, merged, written, and checked before a try is wasted."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ballcast.core.errors import InputError
from ballcast.core.events import Clip, Event, Prediction, grid_bin, merge_bins
from ballcast.data.labels.soccernet import write_labels
from ballcast.inference.submission import RESULTS, check_submission, merge_systems, read_submission, write_submission
from ballcast.metrics.bootstrap import bootstrap, difference

CLIPS = [Clip(f"clip_{i}", (), (Event("PASS", 31000),)) for i in (1, 2, 3)]


def scores(**at: float) -> list[float]:
    """Ten scores, by index: s1=0.5 is DRIVE."""
    return [at.get(f"s{i}", 0.0) for i in range(10)]


def entry(**changes: Any) -> dict[str, Any]:
    good = {"label": "DRIVE", "position": 31600, "confidence": 0.41, "confidence_vect": [0.0, *scores(s1=0.41)]}
    return {k: v for k, v in {**good, **changes}.items() if v is not ...}


def tree(*entries: dict[str, Any], names: tuple[str, ...] = ("clip_1", "clip_2", "clip_3")) -> dict[str, Any]:
    """A submission whose first clip has the entries."""
    videos = [{"annotations": {"observation": [], "anticipation": []}, "path": name} for name in names]
    videos[0]["annotations"] = {"observation": [], "anticipation": list(entries)}
    return {"videos": videos}


def save(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


predictions = st.builds(
    Prediction.from_scores, st.integers(30000, 35000), st.lists(st.floats(0, 1), min_size=10, max_size=10)
)


@given(st.lists(predictions, max_size=12))
def test_merged_bins_hold_one_entry_with_the_class_maxima(entries: list[Prediction]) -> None:
    merged = merge_bins(entries)
    bins = [grid_bin(p.position_ms) for p in merged]
    assert bins == sorted(set(map(grid_bin, (p.position_ms for p in entries))))
    for p in merged:
        same = [q for q in entries if grid_bin(q.position_ms) == grid_bin(p.position_ms)]
        assert p.scores == tuple(max(column) for column in zip(*(q.scores for q in same), strict=True))
        assert p.confidence == max(p.scores)
        assert p.position_ms == max(same, key=lambda q: q.confidence).position_ms  # the time of the highest confidence


@given(st.lists(st.lists(predictions, max_size=6), min_size=3, max_size=3))
def test_what_is_written_passes_the_check(tmp_path_factory: pytest.TempPathFactory, content: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("submission")
    given_ = {clip.name: tuple(entries) for clip, entries in zip(CLIPS, content, strict=True)}
    for name, found in (("results_anticipation.json", 1), ("results.zip", 0)):  # the JSON is not a zip, and fine else
        write_submission(folder / name, given_)
        assert len(check_submission(folder / name, CLIPS)) == found
        assert read_submission(folder / name, hand_in=True) == {k: tuple(merge_bins(v)) for k, v in given_.items()}


def test_a_merged_bin_has_the_surest_ones_time() -> None:
    unsure, sure = (Prediction.from_scores(t, scores(s0=c)) for t, c in ((31610, 0.2), (31700, 0.9)))
    for entries in ((unsure, sure), (sure, unsure)):
        assert [p.position_ms for p in merge_bins(entries)] == [31700]


def test_systems_are_averaged_bin_by_bin() -> None:
    a = {"c": (Prediction.from_scores(31600, scores(s0=0.8)),)}
    b = {"c": (Prediction.from_scores(31700, scores(s0=0.4, s1=0.6)), Prediction.from_scores(34000, scores(s2=0.5)))}
    first, second = merge_systems([a, b])["c"]
    assert first.scores == pytest.approx(scores(s0=0.6, s1=0.3))
    assert first.position_ms == round((0.8 * 31600 + 0.6 * 31700) / 1.4)  # 31 600 and 31 700 share bin 10
    assert second.scores == pytest.approx(scores(s2=0.25))  # silence of a system counts as 0
    huge = {"c": (Prediction.from_scores(31600, scores(s0=1e308)),)}
    with pytest.raises(InputError, match="between 0 and 1"):
        merge_systems([huge, huge])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tree(names=("clip_1", "clip_2")), "clip_3: is in the split but not in the submission"),
        (tree(names=("clip_1", "clip_2", "clip_3", "clip_4")), "clip_4: is in the submission but not in the split"),
        (tree(names=("clip_1", "clip_3", "clip_2")), "videos[1]: is clip_3 where the split's order has clip_2"),
        (tree(names=("clip_1", "clip_2", "clip_3", "clip_2")), "clip_2 appears a second time"),
        (tree(entry(confidence_vect=[0.1] * 10)), "'confidence_vect' has 10 entries instead of 11"),
        (tree(entry(confidence_vect=...)), "has no 'confidence_vect'"),
        (tree(entry(position=29999)), "position 29999 is outside 30000–35000"),
        (tree(entry(position=35001)), "position 35001 is outside 30000–35000"),
        (tree(entry(position="31600")), "must be a whole number, not text"),
        (tree(entry(confidence=float("nan"))), "'confidence' is nan instead of a finite number"),
        (tree(entry(confidence_vect=[float("nan")] * 11)), "'confidence_vect' is nan"),
        (tree(entry(), entry(position=31620)), "falls in a 160 ms bin that has an entry already"),
        (tree(entry(confidence=0.5)), "is not the maximum of its vector"),
        (tree(entry(label="PASS")), "label PASS is not the vector's best-scored action"),
        (tree(entry(label="PASSS")), "unknown label 'PASSS'"),
        (tree(entry(confidence=1.5, confidence_vect=[0, *scores(s1=1.5)])), "must be between 0 and 1"),
        (tree(), "is not a zip, which the server wants; zip it with `ballcast submit`"),
        (tree(entry(confidence=...)), "has no 'confidence'"),
        (tree(names=("clip_1/224p.mp4", "clip_2", "clip_3")), "path 'clip_1/224p.mp4' must be only the clip's name"),
        ({"videos": [{"path": "clip_1", "annotations": {"anticipation": []}}]}, "videos[0]: has no 'observation'"),
        ({"videos": []}, "holds no clip"),
        (tree(3), "anticipation[0]: is 3 instead of a record"),
    ],
)
def test_check_names_the_defect(tmp_path: Path, content: dict[str, Any], words: str) -> None:
    found = check_submission(save(tmp_path / RESULTS, content), CLIPS)
    assert any(words in str(defect) for defect in found), found


def test_check_names_all_defects_at_once(tmp_path: Path, ballcast: Callable[..., Any]) -> None:
    bad = tree(entry(position=1), entry(confidence_vect=[]), names=("clip_2", "clip_1"))
    write_labels(tmp_path / "Labels-ball.json", CLIPS)
    done = ballcast("submit", "--check", save(tmp_path / RESULTS, bad), "--labels", tmp_path / "Labels-ball.json")
    assert done.returncode == 1
    assert "5 defect(s)" in done.stdout  # no zip, two entries, a clip missing, the order


def test_check_names_all_faults_of_an_entry_and_clips_in_order(tmp_path: Path) -> None:
    bad = entry(label="PASSS", position="29000", confidence=3, confidence_vect=[0.0] * 10)
    extra = ("clip_100", "clip_20", "clip_3", "clip_9", "clip_10")
    names = ("clip_1", "clip_2", *extra)
    found = check_submission(save(tmp_path / RESULTS, tree(bad, names=names)), CLIPS)
    of_entry = [d.message for d in found if "anticipation[0]" in d.place]
    assert len(of_entry) == 4
    for words, message in zip(
        ("unknown label", "position 29000", "10 entries", "between 0 and 1"), of_entry, strict=True
    ):
        assert words in message
    in_order = entry(label="PASS", position=31600.0, confidence=3, confidence_vect=[0.0, *scores(s1=2.5)])
    found = check_submission(save(tmp_path / RESULTS, tree(in_order, names=names)), CLIPS)
    assert len([d for d in found if "anticipation[0]" in d.place]) == 4  # decimal, outside 0–1, no maximum, wrong label
    others = [d.place for d in found if "not in the split" in d.message]
    assert others == ["clip_9", "clip_10", "clip_20", "clip_100"]


def test_a_split_without_clips_is_never_ready(tmp_path: Path) -> None:
    write_submission(tmp_path / "results.zip", {})
    assert len(check_submission(tmp_path / "results.zip", [])) == 2


def test_a_zip_holds_the_file_at_its_root_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "results.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(RESULTS, json.dumps(tree()))
        archive.writestr("notes/readme.txt", "hello")
    assert [str(d) for d in check_submission(path, CLIPS) if "notes/readme.txt" in str(d)]


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    write_labels(tmp_path / "Labels-ball.json", CLIPS)
    return tmp_path / "Labels-ball.json"


def test_submit_writes_what_eval_reads(tmp_path: Path, labels: Path, ballcast: Callable[..., Any]) -> None:
    raw = save(tmp_path / RESULTS, tree(entry(), entry(position=31620), names=("clip_2", "clip_1", "clip_3")))
    done = ballcast("submit", raw, "--labels", labels, "-o", "handed.zip")
    assert done.returncode == 0, done.stderr
    assert ballcast("submit", "--check", "handed.zip", "--labels", labels).returncode == 0
    done = ballcast("eval", "--labels", labels, "--predictions", "handed.zip", "--json", "s.json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "s.json").read_text())) == {
        *("at1", "at2", "at3", "at4", "at5", "atInfty", "avg", "per_class")
    }
    done = ballcast("submit", "--merge", raw, "handed.zip", "--labels", labels, "-o", "both.zip")
    assert done.returncode == 0, done.stderr


def test_submit_refuses_what_the_server_would(
    tmp_path: Path, labels: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    good = save(tmp_path / RESULTS, tree(entry()))
    clean_failure(ballcast("submit", good, "-o", "noext"), "noext", "ends in .zip")
    huge = save(tmp_path / "huge.json", tree(entry(confidence=1.7e308, confidence_vect=[0, *scores(s1=1.7e308)])))
    clean_failure(ballcast("submit", huge), str(huge), "anticipation[0]", "between 0 and 1")
    clean_failure(ballcast("submit", "--merge", good, huge, huge), str(huge), "between 0 and 1")
    assert read_submission(huge)["clip_1"][0].confidence == 1.7e308  # to be scored, it may hold any numbers
    bare = save(tmp_path / "bare.json", tree(entry(confidence_vect=...)))
    done = ballcast("submit", bare)
    clean_failure(done, str(bare), "has no 'confidence_vect'; the server needs them")
    assert "--read" not in done.stderr
    assert not list(tmp_path.glob("*.zip"))


def test_labels_given_as_predictions_are_recognised(
    labels: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    done = ballcast("eval", "--labels", labels, "--predictions", labels)
    clean_failure(done, "has no 'confidence'; are these labels instead of predictions?")


@pytest.mark.parametrize("name", ["metric", "metric_2"])
def test_eval_equals_the_reference_on_the_command_line(
    shared: Path, tmp_path: Path, ballcast: Callable[..., Any], name: str
) -> None:
    folder = shared / "fixtures" / name
    done = ballcast(
        *("eval", "--labels", folder / "Labels-ball.json"),
        *("--predictions", folder / RESULTS, "--json", "score.json"),
    )
    assert done.returncode == 0, done.stderr
    ours = json.loads((tmp_path / "score.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    assert f"{100 * expected['avg']:.2f}" in done.stdout
    assert ours.keys() == expected.keys()
    assert all(ours[key] == pytest.approx(expected[key], abs=1e-9) for key in expected.keys() - {"per_class"})
    assert ours["per_class"].keys() == expected["per_class"].keys()
    for key, row in expected["per_class"].items():
        assert ours["per_class"][key] == pytest.approx(row, abs=1e-9)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"videos": [', ["ends too early"]),
        (json.dumps(tree(entry(label="SHOOT"))).encode(), ["clip_1", "anticipation[0]", "did you mean 'SHOT'?"]),
        (json.dumps(tree(entry(position="now"))).encode(), ["'position' is 'now'"]),
        (json.dumps(tree(names=("clip_1",))).encode(), ["clip_2 and 1 more", "another split"]),
        (json.dumps(tree(names=("clip_1", "clip_2", "clip_3", "clip_9"))).encode(), ["clip_9", "another split"]),
        (json.dumps(tree(entry(confidence_vect=...))).encode(), ["--read label"]),
        (None, ["no such file"]),
    ],
)
def test_bad_predictions_are_one_sentence(
    labels: Path,
    tmp_path: Path,
    ballcast: Callable[..., Any],
    clean_failure: Callable[..., None],
    content: bytes | None,
    words: list[str],
) -> None:
    path = tmp_path / RESULTS
    if content is not None:
        path.write_bytes(content)
    before = sorted(p.name for p in tmp_path.iterdir())
    clean_failure(
        ballcast("eval", "--labels", labels, "--predictions", path, "--json", "score.json"), str(path), *words
    )
    clean_failure(ballcast("submit", path, "--labels", labels), str(path))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_broken_zip_is_one_sentence(
    labels: Path, tmp_path: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    write_submission(tmp_path / "good.zip", {c.name: () for c in CLIPS})
    whole = (tmp_path / "good.zip").read_bytes()
    middle = bytearray(whole)
    middle[60] ^= 0xFF
    for name, content in (("cut.zip", whole[:-10]), ("flipped.zip", bytes(middle)), ("text.zip", b"hello")):
        (tmp_path / name).write_bytes(content)
        clean_failure(ballcast("eval", "--labels", labels, "--predictions", tmp_path / name), name)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("results.json", "{}")
    clean_failure(
        ballcast("eval", "--labels", labels, "--predictions", tmp_path / "other.zip"), "no results_anticipation"
    )


def test_the_challenge_split_cannot_be_scored_here(
    tmp_path: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    (tmp_path / "challenge" / "clip_1").mkdir(parents=True)
    path = save(tmp_path / RESULTS, tree(names=("clip_1",)))
    clean_failure(ballcast("eval", "--labels", tmp_path / "challenge", "--predictions", path), "scored by the server")


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, labels: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None], small_disk: Path
) -> None:
    many = [f"clip_{i}" for i in range(3000)]
    crowd = {
        "videos": [tree(*[entry(position=30000 + 160 * k) for k in range(8)], names=(n,))["videos"][0] for n in many]
    }
    write_labels(tmp_path / "many.json", [Clip(n) for n in many])
    raw = save(tmp_path / RESULTS, crowd)
    done = ballcast("data", "convert", raw, small_disk / "osl.json")
    clean_failure(done, "the disk is full")
    assert list(small_disk.iterdir()) == []


def test_eval_prints_and_writes_intervals_and_the_difference_of_two(
    tmp_path: Path, ballcast: Callable[..., Any], clean_failure: Callable[..., None]
) -> None:
    clips = [Clip(f"clip_{i}", (), (Event("PASS", 31_000), Event("SHOT", 33_000, visible=i > 2))) for i in range(8)]
    write_labels(tmp_path / "Labels-ball.json", clips)
    for name, off in (("a.json", 2_000), ("[b].zip", 300)):
        predictions = {c.name: [Prediction("PASS", 31_000 + off * (i % 2), 0.5)] for i, c in enumerate(clips)}
        write_submission(tmp_path / name, predictions)
    labels = ("--labels", "Labels-ball.json")
    done = ballcast("eval", *labels, "--predictions", "a.json", "--bootstrap", 100, "--json", "one.json")
    assert done.returncode == 0, done.stderr
    assert "95 % intervals of 100 resamples" in done.stdout
    read = {name: read_submission(tmp_path / name) for name in ("a.json", "[b].zip")}
    one, two = (bootstrap(clips, predictions, resamples=100) for predictions in read.values())
    assert f"[{100 * one.avg[0]:.2f}, {100 * one.avg[1]:.2f}]" in done.stdout
    assert json.loads((tmp_path / "one.json").read_text())["intervals"] == one.as_dict()

    for pair in (("a.json", "[b].zip", *labels), (*labels, "--predictions", "a.json", "--predictions", "[b].zip")):
        done = ballcast("eval", *pair, "--bootstrap", 100, "--json", "two.json")
        assert done.returncode == 0, done.stderr
        gain = difference(one, two)
        assert f"{100 * gain.ap.mean():+.2f} points, 95 % interval {100 * gain.avg[0]:.2f} to" in done.stdout
        assert "second: [b].zip" in done.stdout
        written = json.loads((tmp_path / "two.json").read_text())
        assert written["difference"] == gain.difference_dict()
        assert (written["first"]["intervals"], written["second"]["intervals"]) == (one.as_dict(), two.as_dict())
    done = ballcast("eval", "a.json", "a.json", *labels, "--seed", 7)
    assert "1000 resamples" in done.stdout
    assert "+0.00 points, 95 % interval 0.00 to 0.00" in done.stdout
    assert "do not show which is better" in done.stdout

    clean_failure(ballcast("eval", *labels), "0 files of predictions")
    clean_failure(ballcast("eval", "a.json", "a.json", "a.json", *labels), "3 files of predictions")
    clean_failure(ballcast("eval", "a.json", "a.json", *labels, "--report", "r.html"), "--report shows one system")
    clean_failure(ballcast("eval", "a.json", *labels, "--bootstrap", 5), "5 resamples", "at least 100")
    clean_failure(ballcast("eval", "a.json", "[b].zip", *labels, "--json", "[b].zip"), "[b].zip")
    write_labels(tmp_path / "one" / "Labels-ball.json", clips[:1])
    clean_failure(ballcast("eval", "a.json", "--labels", "one", "--bootstrap", 100), "only 1; it takes two or more")

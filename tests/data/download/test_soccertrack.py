"""`ballcast download soccertrack` as a user runs it, against a stand-in of the hub."""

import hashlib
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub

from ballcast.core.errors import InputError
from ballcast.data.download.hub_files import HubFile, is_same
from ballcast.data.download.soccertrack import choose_files

REPO = "datasets/atomscott/soccertrack-v2"
Run = Callable[..., subprocess.CompletedProcess[str]]


def files_of(match: str) -> dict[str, bytes]:
    """The layout of a match, and what is not needed."""
    names = [
        f"bas/{match}/{match}_12_class_events.json",
        f"gsr/{match}/{match}_1st.json",
        f"gsr/{match}/{match}_2nd.json",
        f"raw/{match}/{match}_tracker_box_data.xml",
        f"videos/{match}/{match}_panorama_1st_half.mp4",
        f"videos/{match}/{match}_panorama_2nd_half.mp4",
    ]
    return {name: random.Random(name).randbytes(50_000) for name in names}


def tree(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


@pytest.fixture
def run(ballcast: Run, hub: Hub, tmp_path: Path) -> Run:
    hub.files = {f"{REPO}/{name}": content for m in ("117092", "117093") for name, content in files_of(m).items()}
    hub.files |= {f"{REPO}/mot/117092/gt/gt.txt": b"1", f"{REPO}/raw/117092/117092_mapx.npy": b"2"}

    def download(*args: object) -> subprocess.CompletedProcess[str]:
        return ballcast("download", "soccertrack", *args, "--to", tmp_path / "to", "--retries", 0, env=hub.env)

    return download


def test_what_the_camera_needs_is_fetched_once(run: Run, hub: Hub, tmp_path: Path) -> None:
    done = run("117092")
    assert done.returncode == 0, done.stderr
    assert "CC BY 4.0" in done.stdout
    assert tree(tmp_path / "to") == files_of("117092")
    sent = hub.sent.total()
    assert run().returncode == 0
    assert tree(tmp_path / "to") == files_of("117092") | files_of("117093")
    assert hub.sent.total() == 2 * sent  # nothing of the first match again


def test_a_cut_download_goes_on(run: Run, hub: Hub, tmp_path: Path) -> None:
    video = "videos/117092/117092_panorama_1st_half.mp4"
    hub.cuts = [50_000, 50_000, 50_000, 50_000, 20_000]  # the fifth file is the first video
    failed = run("117092")
    assert failed.returncode == 2
    assert "run again, what has arrived is kept" in failed.stderr
    assert not (tmp_path / "to" / video).exists()
    assert run("117092").returncode == 0
    assert tree(tmp_path / "to") == files_of("117092")
    assert hub.sent[f"{REPO}/{video}"] == 50_000  # no byte twice


def test_a_damaged_file_does_not_stay(run: Run, hub: Hub, tmp_path: Path) -> None:
    name = "bas/117092/117092_12_class_events.json"
    hub.damaged[f"{REPO}/{name}"] = bytes(50_000)
    failed = run("117092")
    assert failed.returncode != 0
    assert "the download has the checksum" in failed.stderr
    assert tree(tmp_path / "to") == {}


def test_a_file_of_the_user_is_kept_if_it_is_the_hubs(run: Run, hub: Hub, tmp_path: Path) -> None:
    name = "gsr/117092/117092_1st.json"
    own = tmp_path / "to" / name
    own.parent.mkdir(parents=True)
    own.write_bytes(files_of("117092")[name])
    assert run("117092").returncode == 0
    assert hub.sent[f"{REPO}/{name}"] == 0
    other = tmp_path / "to" / "gsr" / "117093" / "117093_1st.json"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    failed = run("117093")
    assert failed.returncode == 2
    assert "exists, but is not the hub's" in failed.stderr
    assert other.read_text() == "mine"


def test_access_must_be_granted(run: Run, hub: Hub) -> None:
    hub.refuse = (403, "GatedRepo")
    failed = run()
    assert failed.returncode == 2
    assert "accept the terms on the page of this repository" in failed.stderr


def test_matches_that_are_not_there(run: Run, hub: Hub) -> None:
    failed = run("999")
    assert failed.returncode == 2
    assert "has no match '999'; there are 117092, 117093" in failed.stderr
    with pytest.raises(InputError, match="has no gsr/1/1_"):
        choose_files([HubFile("a/b", "bas/1/1_12_class_events.json", COMMIT, 1, "0" * 64)], [], "a/b")
    evil = [HubFile("a/b", f"bas/{name}", COMMIT, 1, "0" * 64) for name in ("../x", "..", "1/../../x")]
    with pytest.raises(InputError, match="has no matches"):
        choose_files(evil, [], "a/b")


def test_small_files_are_checked_as_git_does(tmp_path: Path) -> None:
    """`git hash-object` of "hello\\n" is ce013625…"""
    (tmp_path / "a").write_bytes(b"hello\n")
    assert is_same(HubFile("a/b", "a", COMMIT, 6, "ce013625030ba8dba906f756967f9e9ca394464a"), tmp_path / "a")
    assert is_same(HubFile("a/b", "a", COMMIT, 6, hashlib.sha256(b"hello\n").hexdigest()), tmp_path / "a")
    assert not is_same(HubFile("a/b", "a", COMMIT, 6, "0" * 40), tmp_path / "a")

"""`ballcast download` as a user runs it, against a stand-in of the hub that cuts, lies and refuses."""

import fcntl
import hashlib
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import pyzipper
from hub_server import Hub

from ballcast.workflows.verify import verify

REPO = "datasets/SoccerNet/ActionAnticipation"
KEY = f"{REPO}/224p/train.zip"
LABELS = b'{"version": "1.0", "date": "2025.06.06", "videos": []}'
SLACK = 1 << 18  # bytes that may be on their way when a process is killed

Run = Callable[..., subprocess.CompletedProcess[str]]


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def split_files(clips: int = 3, size: int = 40_000) -> dict[str, bytes]:
    return {"Labels-ball.json": LABELS} | {f"clip_{i}/224p.mp4": noise(size, i) for i in range(1, clips + 1)}


def aes_zip(files: dict[str, bytes], *, inside: str = "", password: str = "pa55") -> bytes:
    out = BytesIO()
    with pyzipper.AESZipFile(out, "w", compression=pyzipper.ZIP_DEFLATED, encryption=pyzipper.WZ_AES) as archive:
        archive.setpassword(password.encode())
        for name, content in files.items():
            archive.writestr(inside + name, content)
    return out.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    """What a user sees: all that is not hidden."""
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: p.read_bytes() for name, p in found.items() if not f"/{name}".count("/.")}


def hidden(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(".") and not p.name.endswith(".lock"))


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "snbaa"


@pytest.fixture
def download(ballcast: Run, hub: Hub, to: Path) -> Run:
    def run(
        *args: object, password: str = "pa55", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        env = {**hub.env, "SOCCERNET_PASSWORD": password, **(env or {})}
        return ballcast("download", "train", "--to", to, "--retries", 0, *args, env=env)

    return run


def start(hub: Hub, to: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ballcast", "download", "train", "--to", str(to), "--retries", "0"],
        env={**os.environ, **hub.env, "SOCCERNET_PASSWORD": "pa55"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("inside", ["", "train/", "224p/train/"])
def test_a_split_is_fetched_and_unpacked_whatever_folder_the_zip_starts_with(
    hub: Hub, download: Run, to: Path, inside: str
) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files, inside=inside)
    done = download()
    assert done.returncode == 0, done.stderr
    assert tree(to) == {f"224p/train/{name}": content for name, content in files.items()}
    assert hidden(to / "224p") == []
    assert done.stderr == ""  # no bars when nobody looks
    assert hub.sent[KEY] == len(hub.files[KEY])
    questions = [line for line in hub.asked if "/resolve/" in line]
    assert questions
    assert all(line.endswith(" token") for line in questions)
    assert all(line.endswith(" anonymous") for line in hub.asked if "/storage/" in line)  # the token stays with the hub


def test_without_names_all_four_splits_come_and_a_second_run_asks_nothing(hub: Hub, ballcast: Run, to: Path) -> None:
    for split in ("train", "valid", "test", "challenge"):
        hub.files[f"{REPO}/720p/{split}.zip"] = aes_zip({"clip_1/720p.mp4": noise(100)})
    env = {**hub.env, "SOCCERNET_PASSWORD": "pa55"}
    assert ballcast("download", "--to", to, "--resolution", "720p", "--keep-zips", env=env).returncode == 0
    assert {p.name for p in (to / "720p").iterdir() if not p.name.startswith(".")} == {
        *("train", "valid", "test", "challenge"),
        *("train.zip", "valid.zip", "test.zip", "challenge.zip"),
    }
    before = len(hub.asked)
    env.pop("SOCCERNET_PASSWORD")
    again = ballcast("download", "--to", to, "--resolution", "720p", env={**env, "SOCCERNET_PASSWORD": ""})
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("complete already") == 4
    assert len(hub.asked) == before


def test_after_a_cut_the_next_run_asks_only_for_the_rest(hub: Hub, download: Run, to: Path, clean_failure: Run) -> None:
    files = split_files(clips=10)
    hub.files[KEY] = aes_zip(files)
    hub.cuts = [150_000]
    clean_failure(download(), "224p/train.zip", "run again")
    assert tree(to) == {}
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] == len(hub.files[KEY])  # not one byte twice
    assert any("bytes=150000-" in line for line in hub.asked)


def test_a_cut_is_taken_up_again_within_a_run(hub: Hub, download: Run, to: Path) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    hub.cuts = [50_000]
    done = download("--retries", 1)
    assert done.returncode == 0, done.stderr
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] == len(hub.files[KEY])


def test_after_a_kill_while_fetching_the_next_run_asks_only_for_the_rest(hub: Hub, download: Run, to: Path) -> None:
    files = split_files(clips=10, size=100_000)
    hub.files[KEY] = aes_zip(files)
    hub.pause_s = 0.02
    process = start(hub, to)
    wait_for(lambda: hub.sent[KEY] > 400_000, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    hub.pause_s = 0
    assert 0 < hub.sent[KEY] < len(hub.files[KEY])
    assert tree(to) == {}
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] <= len(hub.files[KEY]) + SLACK


def test_after_a_kill_while_unpacking_complete_members_are_not_unpacked_again(
    hub: Hub, download: Run, to: Path
) -> None:
    files = split_files(clips=300, size=5_000)
    hub.files[KEY] = aes_zip(files)
    process = start(hub, to)
    wait_for(lambda: len(list(to.glob("224p/.train.*.tree/clip_*"))) > 20, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (to / "224p/train").exists()
    (staged,) = to.glob("224p/.train.*.tree")
    kept = {str(p.relative_to(staged)): p.stat().st_mtime_ns for p in staged.rglob("*.mp4") if p.name == "224p.mp4"}
    assert 0 < len(kept) < 300
    (staged / "clip_1" / ".224p.mp4.dead.tmp").write_bytes(b"half")
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert {name: (to / "224p/train" / name).stat().st_mtime_ns for name in kept} == kept
    assert not list(to.rglob("*.tmp"))
    assert hub.sent[KEY] == len(hub.files[KEY])


def flip(path: Path) -> bytes:
    """Flip a bit in the middle of a file; what it was before."""
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 1]) + raw[len(raw) // 2 + 1 :])
    return raw


def test_damage_between_two_runs_is_found(hub: Hub, download: Run, to: Path, clean_failure: Run) -> None:
    """In the zip, in what was unpacked so far, in the list of a finished download and in its videos."""
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    assert download("--keep-zips").returncode == 0
    done, tree_of = to / "224p/train", to / f"224p/.train.{hashlib.sha256(hub.files[KEY]).hexdigest()[:12]}.tree"
    assert hidden(to / "224p") == []
    assert not list(to.rglob("*.lock"))

    (to / "224p/train.zip").rename(tree_of.with_suffix(".zip"))  # as if it had been killed while it unpacked
    done.rename(tree_of)
    (tree_of / ".ballcast-download.json").unlink()
    flip(tree_of / "clip_2/224p.mp4")
    flip(tree_of.with_suffix(".zip"))
    assert download().returncode == 0
    assert tree(done) == files
    assert hidden(to / "224p") == []
    assert hub.sent[KEY] == 2 * len(hub.files[KEY])  # the damaged zip is fetched again

    assert not verify(to).damaged
    assert verify(to).whole == len(files) + 1
    assert not verify(to).unknown
    whole = flip(done / "clip_3/224p.mp4")
    (said,) = verify(to).damaged
    assert said.startswith(f"{done / 'clip_3/224p.mp4'}: its checksum differs")
    (done / "clip_3/224p.mp4").write_bytes(whole)
    flip(done / ".ballcast-download.json")
    clean_failure(download(), ".ballcast-download.json: its checksum differs")


def test_a_large_file_is_asked_for_in_pieces(hub: Hub, to: Path) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    program = (
        "import sys; from ballcast import cli; import ballcast.data.download.hub_files as h; "
        "h.REQUEST_BYTES = 50_000; cli.main(sys.argv[1:])"
    )
    env = {**os.environ, **hub.env, "SOCCERNET_PASSWORD": "pa55"}
    subprocess.run([sys.executable, "-c", program, "download", "train", "--to", str(to)], env=env, check=True)
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] == len(hub.files[KEY])
    assert [line.split()[2] for line in hub.asked if "/storage/" in line][:2] == ["bytes=0-49999", "bytes=50000-99999"]


def test_a_server_without_ranges_costs_bytes_but_not_correctness(hub: Hub, download: Run, to: Path) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    hub.cuts, hub.ranges = [50_000], False
    assert download().returncode == 2
    assert download().returncode == 0
    assert tree(to / "224p/train") == files


def test_a_new_version_on_the_hub_is_not_glued_to_the_old_one(hub: Hub, download: Run, to: Path) -> None:
    hub.files[KEY] = aes_zip(split_files())
    hub.cuts = [50_000]
    assert download().returncode == 2
    files = split_files(clips=4)
    hub.files[KEY] = aes_zip(files)
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert hidden(to / "224p") == []


def test_wrong_bytes_of_the_right_length_are_noticed_and_thrown_away(
    hub: Hub, download: Run, to: Path, clean_failure: Run
) -> None:
    content = hub.files[KEY] = aes_zip(split_files())
    hub.damaged[KEY] = content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]
    clean_failure(download("--keep-zips"), "224p/train.zip", "checksum")
    assert tree(to) == {}
    assert hidden(to / "224p") == []
    hub.damaged.clear()
    assert download().returncode == 0


def test_a_wrong_password_is_named_and_the_zip_is_kept(hub: Hub, download: Run, to: Path, clean_failure: Run) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    clean_failure(download(password="wrong"), "password is wrong", "NDA")
    assert tree(to) == {}
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] == len(hub.files[KEY])


@pytest.mark.parametrize(
    "content", [b"not a zip at all" * 100, aes_zip(split_files())[:-30], aes_zip({"readme.txt": b"no clips"})]
)
def test_what_is_no_archive_of_clips_is_refused(
    hub: Hub, download: Run, to: Path, clean_failure: Run, content: bytes
) -> None:
    hub.files[KEY] = content
    clean_failure(download(), "train", ".zip")
    assert tree(to) == {}


def test_a_member_that_would_land_outside_is_refused_before_anything_is_written(
    hub: Hub, download: Run, to: Path, clean_failure: Run
) -> None:
    hub.files[KEY] = aes_zip(split_files() | {"../../../evil.txt": b"gotcha"})
    clean_failure(download(), "evil.txt", "outside")
    assert tree(to.parent) == {}


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        ((401, "GatedRepo"), ["terms", "hf auth login"]),
        ((403, "GatedRepo"), ["terms", "hf auth login"]),
        ((404, "EntryNotFound"), ["224p/train.zip"]),
        ((404, "RepoNotFound"), ["no such data set"]),
        ((503, ""), ["503"]),
    ],
)
def test_what_the_hub_refuses_is_said_in_a_sentence(
    hub: Hub, download: Run, to: Path, clean_failure: Run, refuse: tuple[int, str], words: list[str]
) -> None:
    hub.refuse = refuse
    clean_failure(download(), "SoccerNet/ActionAnticipation", *words)
    assert not to.exists()


def test_a_missing_split_is_named(hub: Hub, ballcast: Run, to: Path, clean_failure: Run) -> None:
    hub.files[KEY] = aes_zip(split_files())
    env = {**hub.env, "SOCCERNET_PASSWORD": "pa55"}
    clean_failure(ballcast("download", "train", "valid", "--to", to, env=env), "224p/valid.zip")
    assert not to.exists()


def test_no_network_is_said_in_a_sentence(download: Run, to: Path, clean_failure: Run) -> None:
    clean_failure(download(env={"HF_ENDPOINT": "http://127.0.0.1:9"}), "127.0.0.1:9", "network")
    clean_failure(download(env={"HF_HUB_OFFLINE": "1"}), "HF_HUB_OFFLINE")
    assert not to.exists()


def test_bad_arguments(download: Run, ballcast: Run, hub: Hub, clean_failure: Run) -> None:
    clean_failure(download("extra"), "'extra'", "challenge")
    clean_failure(download("--resolution", "1080p"), "'1080p'", "720p")
    clean_failure(download("--repo", "a/b/c"), "'a/b/c'", "owner/name")
    assert hub.asked == []


def test_without_a_terminal_or_a_password_it_says_what_to_set(
    hub: Hub, download: Run, to: Path, clean_failure: Run
) -> None:
    hub.files[KEY] = aes_zip(split_files())
    clean_failure(download(password=""), "SOCCERNET_PASSWORD", "NDA")
    assert hub.asked == []
    assert not to.exists()


def test_at_a_terminal_the_password_is_asked_for_and_not_shown(hub: Hub, to: Path) -> None:
    hub.files[KEY] = aes_zip(split_files())
    master, slave = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    env = (
        {k: v for k, v in os.environ.items() if k != "SOCCERNET_PASSWORD"}
        | hub.env
        | {"TERM": "xterm", "COLUMNS": "120"}
    )
    command = [sys.executable, "-m", "ballcast", "download", "train", "--to", str(to)]
    with subprocess.Popen(
        command, env=env, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal
    ) as process:
        os.close(slave)
        shown = b""
        while b"NDA" not in shown:
            shown += os.read(master, 1000)
        time.sleep(0.2)  # the prompt switches the echo off before it reads
        os.write(master, b"pa55\n")
        try:
            while block := os.read(master, 1000):
                shown += block
        except OSError:
            pass  # how Linux says that the other end is closed
    os.close(master)
    assert process.returncode == 0, shown
    assert b"pa55" not in shown
    assert b"fetch 224p/train.zip" in shown
    assert b"unpack 224p/train.zip" in shown


def test_a_zip_the_user_has_put_there_is_used_and_kept(hub: Hub, download: Run, to: Path) -> None:
    files = split_files()
    content = hub.files[KEY] = aes_zip(files)
    (to / "224p").mkdir(parents=True)
    (to / "224p/train.zip").write_bytes(content)
    assert download().returncode == 0
    assert tree(to / "224p/train") == files
    assert hub.sent[KEY] == 0
    assert (to / "224p/train.zip").read_bytes() == content


def test_another_zip_of_the_user_is_not_overwritten(hub: Hub, download: Run, to: Path, clean_failure: Run) -> None:
    hub.files[KEY] = aes_zip(split_files())
    own = to / "224p" / "train.zip"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"an earlier version")
    clean_failure(download("--keep-zips"), "train.zip", "another zip")
    assert own.read_bytes() == b"an earlier version"


def test_a_finished_folder_that_lost_a_file_is_completed(hub: Hub, download: Run, to: Path) -> None:
    files = split_files()
    hub.files[KEY] = aes_zip(files)
    assert download().returncode == 0
    shutil.rmtree(to / "224p/train/clip_2")
    (to / "224p/train/clip_3/224p.mp4").write_bytes(b"cut")
    (to / "224p/train/notes.txt").write_bytes(b"mine")
    assert download().returncode == 0
    assert tree(to / "224p/train") == {**files, "notes.txt": b"mine"}


def test_a_folder_that_is_not_from_a_download_is_left_alone(
    hub: Hub, download: Run, to: Path, clean_failure: Run
) -> None:
    hub.files[KEY] = aes_zip(split_files())
    mine = to / "224p/train/clip_1/224p.mp4"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    clean_failure(download(), "224p/train", "move it away")
    assert mine.read_bytes() == b"mine"
    assert hub.sent[KEY] == 0
    shutil.rmtree(to)
    assert download().returncode == 0
    mark = to / "224p/train/.ballcast-download.json"
    assert set(json.loads(mark.read_text())["files"]) == set(split_files())
    for content in ("[]", "{}", "{"):
        mark.write_text(content)
        clean_failure(download(), str(mark))


def test_two_runs_do_not_write_the_same_split(hub: Hub, download: Run, to: Path, clean_failure: Run) -> None:
    hub.files[KEY] = aes_zip(split_files())
    hub.pause_s = 5  # longer than a process takes to start on a busy machine; this one is killed
    process = start(hub, to)
    try:
        wait_for(lambda: hub.sent[KEY] > 0, process)
        clean_failure(download(), "another download")
    finally:
        process.kill()
        process.wait()


def test_too_little_space_is_said_before_anything_is_written(
    hub: Hub, download: Run, small_disk: Path, clean_failure: Run
) -> None:
    hub.files[KEY] = aes_zip(split_files(clips=3, size=400_000))
    clean_failure(download("--to", small_disk / "deep/er"), "2.4 MB", "2.1 MB", "train")
    assert list(small_disk.iterdir()) == []
    assert hub.sent[KEY] == 0


def test_space_is_checked_again_when_the_zip_says_what_it_holds(
    hub: Hub, download: Run, small_disk: Path, clean_failure: Run
) -> None:
    hub.files[KEY] = aes_zip({"clip_1/224p.mp4": noise(100_000) + bytes(3_000_000)})
    clean_failure(download("--to", small_disk), "3.1 MB", "unpack")
    assert tree(small_disk) == {}


def test_a_disk_that_fills_up_in_the_middle(hub: Hub, download: Run, small_disk: Path) -> None:
    files = split_files(clips=7, size=100_000)
    hub.files[KEY] = aes_zip(files)
    hub.pause_s = 0.02
    process = start(hub, small_disk)
    wait_for(lambda: hub.sent[KEY] > 100_000, process)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"Traceback" not in stderr
    assert stderr.count(b"ballcast: ") == 1
    assert b"disk is full" in stderr
    assert [name for name in tree(small_disk) if name != "filler"] == []
    filler.unlink()
    hub.pause_s = 0
    done = download("--to", small_disk)
    assert done.returncode == 0, done.stderr
    assert tree(small_disk / "224p/train") == files
    assert hub.sent[KEY] <= len(hub.files[KEY]) + (1 << 20)

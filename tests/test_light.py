"""The light installation: everything but training runs without torch, and without what only POSIX systems have."""

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from feeds import KINDS, event
from light import HEAVY, ballcast_without, python_without

from ballcast.core.embedded import BACKBONE, MODEL, SAMPLES
from ballcast.core.util import cores, install_command
from tests.video.conftest import make_video

EXCERPT = SAMPLES / "test" / "excerpt.mp4"

# As on Windows: these modules and functions are not there.
NOT_POSIX = """
import sys
import psutil  # has a Windows part of its own; its Linux part needs `resource`
for name in ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
import os, select
for name in ("fork", "forkpty", "nice", "readv", "sched_getaffinity", "getuid", "geteuid", "statvfs"):
    delattr(os, name)
del select.poll, select.epoll
"""


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 s, just enough for two forecasts."""
    return make_video(tmp_path_factory.mktemp("video") / "v.mp4", range(151), Fraction(1, 25), size=(32, 64))


def line_of(done: "subprocess.CompletedProcess[str]") -> str:
    """The one sentence of a command that refused."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("ballcast: "))
    assert "Traceback" not in done.stderr
    return line


def test_predict_and_live_agree_without_torch(video: Path, tmp_path: Path) -> None:
    done = ballcast_without(
        HEAVY, "predict", video, "--any-video", "--csv", "t.csv", "--overlay", "s.mp4", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "v.anticipation.json").read_text())
    assert told["runtime"] == "onnx fp32"
    assert [made["at_ms"] for made in told["anticipations"]] == [5000, 6000]
    live = ballcast_without(HEAVY, "live", video, "--any-video", "--speed", "0", "--json", "-", cwd=tmp_path)
    assert live.returncode == 0, live.stderr
    records = [json.loads(line) for line in live.stdout.splitlines()]
    made = [(r["at_ms"], r["predictions"]) for r in records if r["type"] == "anticipation"]
    assert made == [(a["at_ms"], a["predictions"]) for a in told["anticipations"]]


def test_scores_submissions_and_reports_need_no_torch(tmp_path: Path) -> None:
    """A store of features, predicted by the embedded model; then all that is done with predictions."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "import ballcast\n"
        "from ballcast.core.backbone_config import BackboneIdentity\n"
        "from ballcast.core.embedded import SAMPLES\n"
        "from ballcast.data.labels.soccernet import read_labels, write_labels\n"
        "from ballcast.features.store import Header\n"
        "from ballcast.features.store_writer import StoreWriter\n"
        "model, clips = ballcast.load().window_model, read_labels(SAMPLES / 'test')\n"
        "shape = model.config.clips, model.config.width\n"
        "made_by = BackboneIdentity(**model.metadata['backbone'])\n"
        "writer = StoreWriter(Path('store'), Header(made_by, *shape))\n"
        "for i, clip in enumerate(clips):\n"
        "    block = np.random.default_rng(i).random((6, *shape)).astype(np.float16)\n"
        "    writer.add(clip.name, block, source='x.mp4', size=0, mtime_ns=0)\n"
        "writer.finish()\n"
        "write_labels(Path('store/Labels-ball.json'), clips)\n"
        "table = ballcast.load().features('store').to_frame()\n"
        "assert list(table.columns) == ['clip', 'at_ms', 'label', 'position_ms', 'confidence', 'score', 'within_5s']\n"
        "assert set(table['clip']) <= {clip.name for clip in clips}\n"
        "assert not {'torch', 'timm'} & set(sys.modules)\n"
    )
    (tmp_path / "store").mkdir()
    done = python_without(HEAVY, code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for command in (
        ("predict", "--features", "store", "--model", MODEL, "-o", "predictions.json"),
        ("eval", "--labels", "store", "predictions.json", "--json", "score.json", "--report", "report.html"),
        ("submit", "predictions.json", "--labels", "store", "--out", "results_anticipation.zip"),
    ):
        done = ballcast_without(HEAVY, *command, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert json.loads((tmp_path / "score.json").read_text())
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_frames_need_pandas(video: Path, tmp_path: Path) -> None:
    code = f"import ballcast\nballcast.load().video({str(video)!r}).to_frame()\n"
    done = python_without((*HEAVY, "pandas"), code, cwd=tmp_path)
    assert "MissingExtra: this needs pandas, which is not installed: pip install pandas" in done.stderr


def test_feeds_and_doctor_need_no_torch(tmp_path: Path) -> None:
    (tmp_path / "feeds").mkdir()
    rows = [{**event(s, 10, KINDS[0]), "matchPeriod": "1H"} for s in range(60)]
    (tmp_path / "feeds" / "1.json").write_text(json.dumps(rows))
    done = ballcast_without(HEAVY, "events", "feeds", "store", "--provider", "wyscout", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "store" / "manifest.json").is_file()
    told = ballcast_without(HEAVY, "predict", "--events", "feeds/1.json", "--table", "t.csv", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "t.csv").read_text().startswith("match,period")
    doctor = ballcast_without(HEAVY, "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "ONNX Runtime on" in doctor.stdout
    assert "[train]'" in doctor.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("train", "paper", "data.features=nowhere"),
        ("export",),
        ("tune", "model", "--features", "store"),
        ("extract", EXCERPT, "store", "--backbone", BACKBONE),
        ("demo", "--train"),
        ("predict", EXCERPT, "--runtime", "torch"),
    ],
)
def test_what_needs_torch_says_so_in_one_sentence(command: tuple[object, ...], tmp_path: Path) -> None:
    line = line_of(ballcast_without(HEAVY, *command, cwd=tmp_path))
    assert "torch" in line
    assert "pip install '" in line
    assert "[train]'" in line
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_noticed_before_a_model_is_loaded(tmp_path: Path) -> None:
    """No model is: `onnxruntime` and torch cannot be imported."""
    missing = (*HEAVY, "onnxruntime")
    for command in (("predict", "no.mp4"), ("live", "no.mp4"), ("export", "--video", "no.mp4")):
        assert "no.mp4: no such file" in line_of(ballcast_without(missing, *command, cwd=tmp_path))
    for command in (("predict", "--events", "no.json", "--model", MODEL), ("serve", "--videos", "no", "--port", "0")):
        assert "no such" in line_of(ballcast_without(missing, *command, cwd=tmp_path))


def test_without_posix(video: Path, tmp_path: Path) -> None:
    """The light path where fcntl, resource, fork, nice and poll do not exist: a video, locks, the server's decoder."""
    code = NOT_POSIX + (
        "import itertools\n"
        "from pathlib import Path\n"
        "import ballcast\n"
        "import ballcast.cli\n"
        "from ballcast.core.files import file_lock\n"
        "from ballcast.video.file import VideoFile\n"
        "from ballcast_server.confined import decoder\n"
        "from ballcast_server.web import server\n"
        "from ballcast_server.settings import Limits\n"
        f"video = Path({str(video)!r})\n"
        "with ballcast.load().video(video, any_video=True) as forecasts:\n"
        "    assert [f.at_ms for f in forecasts] == [5000, 6000]\n"
        "with file_lock(Path('lock'), 'busy'):\n"
        "    pass\n"
        "with VideoFile(video) as file, decoder.frames(video, 'v', Limits()) as frames:\n"
        "    pairs = list(itertools.zip_longest(file.frames(), frames))\n"
        "assert len(pairs) == 151 and all((a == b).all() for a, b in pairs)\n"
        "with decoder.frames(video, 'v', Limits()) as frames:\n"
        "    next(frames)\n"  # left early: the thread that reads ends
        "import threading, time\n"
        "until = time.monotonic() + 60\n"
        "while any(t.name == 'decoder-pipe' for t in threading.enumerate()):\n"
        "    assert time.monotonic() < until\n"
        "    time.sleep(0.05)\n"
    )
    done = python_without(HEAVY, code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_decoders_memory_is_bounded_without_the_systems_help(tmp_path: Path) -> None:
    code = (
        "import psutil, sys, time\n"
        "sys.modules['resource'] = None\n"
        "from ballcast_server.confined import process\n"
        "process.limit_memory(400 << 20)\n"
        "time.sleep(0.2)\n"
        "held = bytearray(500 << 20)\n"  # written, so that it is resident
        "held[:] = b'x' * len(held)\n"
        "time.sleep(120)\n"  # ended long before, or the exit code is 0
    )
    done = python_without((), code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_threads_sleep_while_they_wait_unless_the_user_chose_otherwise(tmp_path: Path) -> None:
    code = (
        "import sys, os\n"
        "from ballcast.cli import main\n"
        "try:\n"
        "    main(['--version'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print(os.environ['OMP_WAIT_POLICY'], os.environ['OMP_NUM_THREADS'])\n"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
    for given, expected in (
        ({}, f"PASSIVE {cores()}"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"}, "ACTIVE 7"),
    ):
        done = subprocess.run([sys.executable, "-c", code], env={**clean, **given}, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == expected, done.stderr


@pytest.mark.parametrize(
    ("quota", "most"), [("max 100000", 10**6), ("150000 100000", 2), ("50000 100000", 1), ("", 10**6)]
)
def test_cores_are_those_a_container_may_use(quota: str, most: int, tmp_path: Path) -> None:
    path = tmp_path / "cpu.max"
    if quota:
        path.write_text(quota)
    assert cores(path) == min(cores(tmp_path / "none"), most)


def test_the_command_that_installs_an_extra_names_a_place_that_is_there() -> None:
    command = install_command("train")
    place = command.split("'")[1].removesuffix("[train]")
    assert (Path(place) / "pyproject.toml").is_file()  # a clone: there is no release on an index yet

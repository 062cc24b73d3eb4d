"""Make a video of every kind, run `ballcast predict` on each, and write what each gives into docs/video.md.

    nice python -m tools.video_kinds MATCH --work /tmp/kinds --write
    nice python -m tools.video_kinds MATCH --work /tmp/kinds --write --pitch ../shared/data/simbaa/*.mp4 --other FILES

The first table is made by FFmpeg's command from one simulated match; a kind whose file is there is not made again, one
whose result is there is not predicted again. The second counts in how many seconds a pitch is seen.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ballcast.core.errors import InputError
from ballcast.core.events import Gap, Scene
from ballcast.video.file import VideoFile
from ballcast.video.pitch import PitchDetector

SECONDS = 10
SIZE = "199x112"  # a quarter of the pixels of training: this is about files, not about what is forecast
DOCS = Path(__file__).parents[1] / "docs" / "video.md"
SAR = "scale=720:576,setsar=64/45"
SOUND = ("-f", "lavfi", "-i", "sine=frequency=440")


@dataclass(frozen=True)
class Kind:
    """A file to make: `name`, what is special about it, FFmpeg's arguments after the input, and those of predict."""

    name: str
    what: str
    encode: str
    predict: str = ""
    sound: bool = False
    seconds: int = SECONDS


X264 = "-c:v libx264 -preset veryfast -g 50"
KINDS = (
    Kind("h264.mp4", "H.264, 25 fps, 398×224: as it is", f"{X264}"),
    Kind("hevc.mp4", "HEVC", "-c:v libx265 -preset ultrafast -x265-params log-level=none"),
    Kind("vp9.webm", "VP9 in WebM", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 1M"),
    Kind("av1.mkv", "AV1 in Matroska", "-c:v libsvtav1 -preset 12"),
    Kind("23.976.mp4", "23.976 fps", f"-r 24000/1001 {X264}"),
    Kind("29.97.mp4", "29.97 fps", f"-r 30000/1001 {X264}"),
    Kind("50.mp4", "50 fps", f"-r 50 {X264}"),
    Kind("59.94.mp4", "59.94 fps", f"-r 60000/1001 {X264}"),
    Kind(
        "variable.mkv",
        "variable rate: every third frame left out of half of it",
        f"-vf select=not(lt(t\\,5)*eq(mod(n\\,3)\\,0)) -fps_mode vfr {X264}",
    ),
    Kind(
        "interlaced.ts",
        "interlaced, 720×576",
        f"-vf scale=720:576,tinterlace=interleave_top,fps=25 -flags +ilme+ildct {X264}",
    ),
    Kind("anamorphic.mpg", "anamorphic PAL, MPEG-2, 720×576 shown as 1024×576", f"-vf {SAR} -c:v mpeg2video -b:v 4M"),
    Kind("portrait.mp4", "portrait, 576×1024 with bars", f"-vf scale=576:-2,pad=576:1024:0:350 {X264}"),
    Kind("4k.mp4", "4K, 3840×2160", "-vf scale=3840:2160 -c:v libx264 -preset ultrafast"),
    Kind("10bit.mkv", "H.264 with 10 bits", "-pix_fmt yuv420p10le -c:v libx264 -preset veryfast"),
    Kind("sound.mp4", "with sound (AAC), overlay drawn", f"{X264} -c:a aac", "--overlay OVERLAY", sound=True),
    Kind(
        "sound.mkv",
        "with sound (Opus) in Matroska, overlay drawn",
        f"{X264} -c:a libopus",
        "--overlay OVERLAY",
        sound=True,
    ),
    Kind("stream.ts", "MPEG-TS", f"{X264}"),
    Kind("damaged.ts", "MPEG-TS, three packets lost in the middle", f"{X264}", seconds=18),
    Kind("cut.mkv", "Matroska, the last third cut off", f"{X264}", seconds=14),
    Kind("zürich 3:2.mp4", "umlauts and signs in its name", f"{X264}"),
    Kind("two-hours.mp4", "2 h, its last 10 s asked for", "", "--from 1:59:50 --every 5"),
    Kind("black.mp4", "not football: black", "SOURCE color=black:s=398x224"),
    Kind("testcard.mp4", "not football: a test card", "SOURCE smptebars=s=398x224"),
    Kind("noise.mp4", "not football: noise", "SOURCE nullsrc=s=398x224,geq=random(1)*255:128:128"),
    Kind("fractal.mp4", "not football: a fractal", "SOURCE mandelbrot=s=398x224"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("match", type=Path, help="a simulated match")
    parser.add_argument("--work", type=Path, default=Path("kinds"), help="folder for the files")
    parser.add_argument("--pitch", type=Path, nargs="*", default=[], help="videos of football")
    parser.add_argument("--other", type=Path, nargs="*", default=[], help="videos of anything else")
    parser.add_argument("--only", help="only kinds whose name contains this")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/video.md")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind in KINDS if not given.only or given.only in kind.name]
    tables = {"kinds": [kinds_row(kind, given.match, given.work) for kind in kinds]}
    if given.pitch or given.other:
        tables["pitch"] = [pitch_row(path, football=path in given.pitch) for path in (*given.pitch, *given.other)]
    heads = {
        "kinds": "file|what|exit|forecasts|gaps|same surest action|message",
        "pitch": "video|football|seconds looked at|a pitch seen in|forecasts withheld at",
    }
    for name, rows in tables.items():
        text = table(heads[name].split("|"), rows)
        sys.stdout.write(text + "\n")
        if given.write:
            write_table(name, text)


def make(kind: Kind, match: Path, work: Path) -> Path:
    """The file of a kind, made unless it is there."""
    path = work / kind.name
    if path.exists():
        return path
    out = f"file:{path}"
    if kind.name == "two-hours.mp4":
        run = ["-stream_loop", "23", "-i", str(match), "-c", "copy", "-t", "7200", out]
    elif kind.encode.startswith("SOURCE"):
        run = [
            "-f",
            "lavfi",
            "-i",
            kind.encode.split(maxsplit=1)[1],
            "-t",
            str(kind.seconds),
            "-pix_fmt",
            "yuv420p",
            out,
        ]
    else:
        sound = [*SOUND, "-shortest"] if kind.sound else []
        run = ["-ss", "30", "-t", str(kind.seconds), "-i", str(match), *sound, *kind.encode.split(), out]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *run], check=True)
    raw = path.read_bytes() if kind.name in ("damaged.ts", "cut.mkv") else b""
    if kind.name == "damaged.ts":
        at = 188 * (len(raw) // 376)
        path.write_bytes(raw[:at] + raw[at + 3 * 188 :])
    if kind.name == "cut.mkv":
        path.write_bytes(raw[: 2 * len(raw) // 3])
    return path


def kinds_row(kind: Kind, match: Path, work: Path) -> list[str]:
    """Predict a kind; a row of the table."""
    path, done = make(kind, match, work), work / f"{kind.name}.done.json"
    out = work / f"{kind.name}.json"
    if not done.exists():
        began = time.perf_counter()
        more = kind.predict.replace("OVERLAY", str(work / f"{kind.name}.seen.mp4")).split()
        command = [sys.executable, "-m", "ballcast", "predict", str(path), "-o", str(out), "--size", SIZE, *more]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        words = [
            line
            for line in (result.stdout + result.stderr).splitlines()
            if "scaled" in line or "no forecasts" in line or line.startswith("ballcast:")
        ]
        record = {"exit": result.returncode, "words": words, "seconds": time.perf_counter() - began}
        done.write_text(json.dumps(record))
    record = json.loads(done.read_text())
    tree = json.loads(out.read_text()) if out.exists() else {"anticipations": [], "gaps": []}
    gaps = "; ".join(str(Gap.from_json(gap)) for gap in tree["gaps"]) or "–"
    words = [re.sub(r"^.*?: (?=no forecasts)", "", line) for line in record["words"] if "no forecasts" not in line]
    shown = "; ".join(words).replace(str(work) + "/", "") or "–"
    if kind.predict.startswith("--overlay"):
        shown = f"{shown}; overlay with {streams(work / f'{kind.name}.seen.mp4')}".removeprefix("–; ")
    return [
        kind.name,
        kind.what,
        str(record["exit"]),
        str(len(tree["anticipations"])),
        gaps,
        agreement(tree, work),
        shown,
    ]


def agreement(tree: dict, work: Path) -> str:
    """In how many of the forecasts the surest action is that of the first kind at the same time."""
    first = work / f"{KINDS[0].name}.json"
    if not first.exists() or tree.get("every_ms") != 1000:
        return "–"
    own, other = (_surest(t) for t in (tree, json.loads(first.read_text())))
    both = own.keys() & other.keys()
    return f"{sum(own[at] == other[at] for at in both)} of {len(both)}" if both else "–"


def _surest(tree: dict) -> dict[int, str]:
    return {
        made["at_ms"]: max(made["predictions"], key=lambda p: p["confidence"])["label"]
        for made in tree["anticipations"]
        if made["predictions"]
    }


def streams(path: Path) -> str:
    """The codecs in a file."""
    command = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "csv=p=0", str(path)]
    return " and ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())


def pitch_row(path: Path, *, football: bool) -> list[str]:
    """Look for a pitch along a video; a row of the table."""
    detector, looked, seen, withheld = PitchDetector(), 0, 0, 0
    try:
        for n, picture in enumerate(VideoFile(path, strict=False).sampled_and_gaps()):
            if isinstance(picture, Gap | Scene) or n % 25:
                continue
            detector.look(n, picture)
            looked, seen = looked + 1, seen + detector.last
            withheld += n >= 125 and not detector.pitch
    except InputError as error:
        return [path.name, "yes" if football else "no", "–", "–", str(error)]
    due = max(0, looked - 5)
    return [path.name, "yes" if football else "no", str(looked), str(seen), f"{withheld} of {due}"]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def write_table(name: str, text: str) -> None:
    """Put a table between its marks in docs/video.md."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    page = DOCS.read_text()
    before, after = page.split(begin)[0], page.split(end)[1]
    DOCS.write_text(f"{before}{begin}\n{text}\n{end}{after}")


if __name__ == "__main__":
    main()

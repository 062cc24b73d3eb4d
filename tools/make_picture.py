"""Make the picture the README opens with: what ballcast saw coming, on a frame of the embedded excerpt.

    python -m tools.make_picture --out docs/picture.webp
    python -m tools.make_picture --model runs/simbaa/best --backbone runs/backbone/best --clip clip_4

Above, the last frame seen; below it the five seconds to come: what was anticipated, how surely, and what came. Without
--clip it is the clip that was anticipated best.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from ballcast.core.actions import ACTION_INDEX, HORIZON_MS, OBSERVED_MS, SHORT_NAMES
from ballcast.core.events import Clip, Event, Prediction
from ballcast.core.files import replacing
from ballcast.core.hub import SAMPLES, choose_models
from ballcast.core.palette import DARK, ink_on, rgb
from ballcast.data.labels.soccernet import read_labels
from ballcast.data.samples.windows import STEP_MS
from ballcast.features.backbone import Backbone
from ballcast.features.extract import extract
from ballcast.features.store_import import cut_clips
from ballcast.inference.store_predictor import check_backbone
from ballcast.metrics.diagnosis import Pair, pair_all, ranked
from ballcast.model.anticipator import Anticipator
from ballcast.report.report import REACH_MS
from ballcast.video.stills import stills
from tools.predict_store import predict_store

WIDTH, EDGE = 1280, 36  # pixels
LARGEST = 300_000  # bytes of the file
LANE, ROW, AXIS = 34, 46, 40  # heights: a lane's name, a row of marks, the axis


def anticipate(video: Path, clips: Sequence[Clip], model: str, backbone: str) -> dict[str, list[Prediction]]:
    """Predict each clip, with probabilities as confidences."""
    anticipator, network = Anticipator.from_pretrained(model), Backbone.load(backbone)
    check_backbone(anticipator, network, model, backbone)
    with tempfile.TemporaryDirectory() as work:
        games = extract(video, Path(work) / "game", network).store
        store = cut_clips(games, Path(work) / "clips", {video.stem: [clip.name for clip in clips]})
        weight = anticipator.pos_weight
        return predict_store(anticipator, store, clips, anticipator.emit.shown, torch.device("cpu"), pos_weight=weight)


def draw(frame: Image.Image, pairs: Sequence[Pair]) -> Image.Image:
    """The frame above, the five seconds to come below."""
    predicted = [(p.prediction, p.right) for p in pairs if p.prediction]
    came = [(p.event, p.right) for p in pairs if p.event]
    big, small = ImageFont.load_default(size=24), ImageFont.load_default(size=19)
    lanes = [("ballcast saw coming", _place(predicted, big)), ("what came", _place(came, big))]
    top = round(frame.height * WIDTH / frame.width)
    height = top + AXIS + sum(LANE + ROW * max(1, max((m[0] for m in marks), default=0) + 1) for _, marks in lanes) + 14
    picture = Image.new("RGB", (WIDTH, height), rgb(DARK.ground))
    picture.paste(frame.resize((WIDTH, top), Image.Resampling.LANCZOS), (0, 0))
    pen = ImageDraw.Draw(picture)
    for second in range(HORIZON_MS // 1000 + 1):
        x, name = _x(1000 * second), f"+{second} s" if second else "now"
        pen.line((x, top + AXIS, x, height), fill=rgb(DARK.line if second else DARK.accent), width=2 if second else 4)
        pen.text((x, top + AXIS / 2), name, font=small, fill=rgb(DARK.quiet if second else DARK.accent), anchor="mm")
    y = top + AXIS
    for name, marks in lanes:
        pen.text((_x(0) + 12, y + LANE / 2 + 2), name, font=small, fill=rgb(DARK.quiet), anchor="lm")
        y += LANE
        for row, left, item, right in marks:
            _mark(pen, left, y + ROW * row, item, right, big)
        y += ROW * max(1, max((m[0] for m in marks), default=0) + 1)
    return picture


def _x(ahead_ms: float) -> float:
    return EDGE + (WIDTH - 2 * EDGE) * ahead_ms / HORIZON_MS


def _label(item: Prediction | Event) -> str:
    name = SHORT_NAMES[ACTION_INDEX[item.label]]
    return f"{name} {100 * item.confidence:.0f} %" if isinstance(item, Prediction) else name


def _place(
    items: "Sequence[tuple[Prediction | Event, bool]]", font: "ImageFont.FreeTypeFont | ImageFont.ImageFont"
) -> "list[tuple[int, float, Prediction | Event, bool]]":
    """Row and left edge of each mark: it begins at its time, and moves left only where the picture ends."""
    ends: list[float] = []
    placed = []
    for item, right in sorted(items, key=lambda pair: pair[0].position_ms):
        wide = font.getlength(_label(item)) + 56
        left = min(_x(item.position_ms - OBSERVED_MS), WIDTH - 8 - wide)
        row = next((r for r, end in enumerate(ends) if left >= end + 10), len(ends))
        ends[row:] = [left + wide, *ends[row + 1 :]]
        placed.append((row, left, item, right))
    return placed


def _mark(
    pen: ImageDraw.ImageDraw,
    left: float,
    top: float,
    item: Prediction | Event,
    right: bool,
    font: "ImageFont.FreeTypeFont | ImageFont.ImageFont",
) -> None:
    hue, label = rgb(DARK.actions[ACTION_INDEX[item.label]]), _label(item)
    wide = font.getlength(label) + 44
    box = (left, top + 3, left + wide, top + ROW - 5)
    if isinstance(item, Prediction):
        pen.rounded_rectangle(box, 6, fill=hue)
        ink = ink_on(hue)
        sign = (left + wide - 24, top + ROW / 2 - 1)
        if right:
            pen.line(
                [(sign[0] - 7, sign[1]), (sign[0] - 2, sign[1] + 6), (sign[0] + 8, sign[1] - 7)], fill=ink, width=3
            )
        else:
            pen.line([(sign[0] - 5, sign[1] - 5), (sign[0] + 5, sign[1] + 5)], fill=ink, width=3)
            pen.line([(sign[0] - 5, sign[1] + 5), (sign[0] + 5, sign[1] - 5)], fill=ink, width=3)
    else:
        pen.rounded_rectangle((box[0], box[1], box[2] - 22, box[3]), 6, outline=hue, width=3)
        ink = rgb(DARK.ink)
    pen.text((left + 11, top + ROW / 2 - 1), label, font=font, fill=ink, anchor="lm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="an anticipator's folder; by default the embedded one")
    parser.add_argument("--backbone", help="the folder of the backbone it was trained on")
    parser.add_argument("--samples", type=Path, default=SAMPLES / "test", help="excerpt.mp4 and its Labels-ball.json")
    parser.add_argument("--clip", help="the clip to show")
    parser.add_argument("--out", type=Path, default=Path("docs/picture.webp"), help=".webp or .png")
    given = parser.parse_args()
    model, backbone = choose_models(given.model, given.backbone, "make_picture")
    clips, video = read_labels(given.samples), given.samples / "excerpt.mp4"
    predictions = anticipate(video, clips, model, backbone)
    near = pair_all(clips, predictions, reach_ms=REACH_MS)
    chosen = given.clip or ranked(near, REACH_MS)[0]
    at = [clip.name for clip in clips].index(chosen) * STEP_MS + OBSERVED_MS
    (frame,) = stills(video, [at - 40])  # the last one seen
    if frame is None:
        sys.exit(f"{video}: ends before {at} ms")
    with replacing(given.out) as temporary:
        kind = "PNG" if given.out.suffix == ".png" else "WEBP"
        draw(frame, near[chosen]).save(temporary, kind, quality=82, method=6, optimize=True)
        if temporary.stat().st_size > LARGEST:
            sys.exit(f"{given.out}: {temporary.stat().st_size} bytes are more than {LARGEST}; take .webp")
    sys.stdout.write(f"{given.out}: {chosen}, {given.out.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()

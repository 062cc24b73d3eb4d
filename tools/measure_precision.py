"""Measure the expected precision of the embedded model along labelled matches; write it beside its weights.

    python -m tools.measure_precision --videos ../shared/data/simbaa       # after a change of the embedded model

The matches are those of the split `valid` in `matches.json`, or those named: never the ones the model is scored on.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer

from ballcast.api import load
from ballcast.core.actions import HORIZON_MS
from ballcast.core.embedded import MODEL
from ballcast.data.labels.games import MATCHES, read_matches
from ballcast.inference.expected_precision import Sample, chance_within_5s, fit_precision, write_precision
from ballcast.inference.video_predictor import predict_video
from ballcast.video.file import VideoFile


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--videos", type=Path, required=True, help=f"a folder with {MATCHES}")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--names", nargs="*", help="videos instead of a split")
    args = parser.parse_args()
    model, samples, chance = load(), [], []
    matches = read_matches(args.videos / MATCHES)
    chosen = [m for m in matches if (m.video in args.names if args.names else m.split == args.split)]
    for match in chosen:
        typer.echo(f"{match.video}: {len(match.events)} actions")
        predictor = model.predictor()
        with VideoFile(args.videos / match.video) as video:
            for made in predict_video(video, predictor):
                until = made.at_ms + HORIZON_MS
                own = [replace(p, confidence=p.score) for p in made.predictions]  # as before any calibration
                sample: Sample = (own, [e for e in match.events if made.at_ms < e.position_ms <= until])
                samples.append(sample)
                assert predictor.slots is not None
                chance.append(chance_within_5s(predictor.slots, predictor.pos_weight)[0])
    measured = fit_precision(samples, np.stack(chance))
    for label, curve in measured.actions.items():
        typer.echo(f"{label}: {' '.join(f'{c:.2f}→{p:.2f}' for c, p in curve)}; within 5 s {measured.within_5s[label]}")
    typer.echo(f"{measured.predictions} predictions; shown by default from {measured.default:.2f} on")
    typer.echo(str(write_precision(MODEL, measured, ", ".join(match.video for match in chosen))))


if __name__ == "__main__":
    main()

"""Make the embedded model of event feeds from a training of `ballcast train feed`.

    python -m benchmarks.feed_model score RUN
    python -m tools.make_feed_model RUN [--out src/ballcast/samples/feed_model] [--picture reliability.png]

RUN is the folder of a training; RUN/best is packed: its weights in half precision, the ONNX graph that reads them by
offset, and its calibration. The calibration's error on England, from the outputs that `score` left in RUN, is printed
and kept in `config.json`; --picture draws it.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save

from ballcast.core.embedded import FEED_MODEL
from ballcast.core.event_schema import CODES, DETAILS, VALUES
from ballcast.core.feed_forecast import SHOT
from ballcast.core.files import read_json, replacing, write_bytes, write_json
from ballcast.inference.event_model import GRAPH, INPUTS, OUTPUTS, calibrated
from ballcast.inference.torch_event_model import Outputs
from ballcast.model.event_transformer import CONFIG, WEIGHTS, load_event_transformer
from tools.embed_models import refer

SOURCE = (
    "Wyscout event data of the 2017/18 seasons of Spain, Italy, France and Germany: Pappalardo, Massucco et al., "
    "Soccer match event dataset, figshare 2019; A public data set of spatio-temporal match events in soccer "
    "competitions, Scientific Data 6, 236 (2019); CC BY 4.0"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=FEED_MODEL)
    parser.add_argument("--picture", type=Path, help="write the reliability diagram of P(shot within 5 s) (.png)")
    args = parser.parse_args()
    trained = read_json(args.run / "best" / CONFIG, "sizes of the model")
    error = calibration_error(args.run, trained["calibration"])
    for row in error:
        print(row)  # noqa: T201
    if args.picture is not None:
        draw(args.picture, error)
    if args.out.exists():
        shutil.rmtree(args.out)
    with replacing(args.out) as folder:
        folder.mkdir(parents=True)
        config = {key: trained[key] for key in ("kind", "network", "calibration")}
        config |= {"trained_on": "Wyscout, 2017/18, four leagues without England", "attribution": SOURCE}
        write_json(folder / CONFIG, config | {"license": "CC-BY-4.0", "calibration_error": error}, indent=1)
        write_model(args.run / "best", folder, trained["network"])
        millions = sum(t.numel() for t in load_file(folder / WEIGHTS).values()) / 1e6
        write_bytes(folder / "README.md", CARD.format(millions=millions, source=SOURCE).encode())
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{args.out}: {size / 1e6:.2f} MB")  # noqa: T201


CARD = """---
license: cc-by-4.0
tags: [football, soccer, event data]
---
# ballcast: event feeds

The probability of each of ten ball actions, by team, within 1 to 5 seconds, from the events of the last 30 seconds of a
football match's event feed. An event transformer with {millions:.1f} million weights in half precision; `events.onnx`
reads them from `model.safetensors`. Use: `ballcast predict --events FILE`, or `ballcast.load("events").feed(path)`.

Trained on {source}. England was held out. In training, details that poorer feeds lack were hidden at random;
probabilities are calibrated on validation matches of the same leagues.

Keep this attribution with the weights.
"""


def write_model(trained: Path, folder: Path, sizes: dict[str, Any]) -> None:
    """The weights of `trained` in half precision, and the graph that reads them, into `folder` with its config."""
    weights = folder / WEIGHTS
    write_bytes(weights, save({name: t.half() for name, t in load_file(trained / WEIGHTS).items()}))
    network = Outputs(load_event_transformer(folder)).eval()
    B, N = 2, sizes["tokens"]
    codes = torch.zeros(B, N, CODES, dtype=torch.int64)
    examples = (codes, torch.rand(B, N, VALUES), torch.ones(B, len(DETAILS)))
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        path = Path(place) / "raw.onnx"
        axes = {name: {0: "batch"} | ({1: "tokens"} if name in INPUTS[:2] else {}) for name in (*INPUTS, *OUTPUTS)}
        names = {"input_names": list(INPUTS), "output_names": list(OUTPUTS), "dynamic_axes": axes}
        torch.onnx.export(
            network, examples, str(path), dynamo=False, do_constant_folding=False, opset_version=17, **names
        )
        write_bytes(folder / GRAPH, refer(path.read_bytes(), weights))


def calibration_error(run: Path, calibration: Any) -> list[dict[str, float]]:
    """The error of P(shot within 5 s) in each decile of England; nothing if `score` was not run."""
    path = run / "test-chance.npz"
    if not path.is_file():
        return []
    with np.load(path) as file:
        chance, came = file["chance"].astype(np.float32), file["came"]
    both = np.repeat(chance[:, None], 3, axis=1)
    fitted = np.array(calibration, np.float32)
    return deciles(calibrated(both, fitted)[:, 2, SHOT, -1], came[:, SHOT, -1])


def draw(path: Path, rows: list[dict[str, float]]) -> None:
    """The reliability diagram: what came against what was predicted, with 95 % intervals of each decile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    predicted, came = np.array([r["predicted"] for r in rows]), np.array([r["came"] for r in rows])
    spread = 196 * np.sqrt(came / 100 * (1 - came / 100) / np.array([r["count"] for r in rows]))
    top = 1.1 * max(predicted.max(), (came + spread).max())
    axes.plot([0, top], [0, top], color="grey", lw=1)
    axes.errorbar(predicted, came, yerr=spread, fmt="o", color="#c2185b", ms=5, capsize=2)
    axes.set(xlim=(0, top), ylim=(0, top), xlabel="predicted, %", ylabel="came, %")
    axes.set_title("A shot within 5 s, England: deciles of the predictions", fontsize=10)
    figure.savefig(path, dpi=110)


def deciles(probability: Any, came: Any) -> list[dict[str, float]]:
    """For each decile of the predictions: mean probability, share that came, both in per cent, and the count."""
    order = np.argsort(probability, kind="stable")
    parts = np.array_split(order, 10)
    return [
        {
            "predicted": round(100 * float(probability[part].mean()), 3),
            "came": round(100 * float(came[part].mean()), 3),
            "count": len(part),
        }
        for part in parts
    ]


if __name__ == "__main__":
    main()

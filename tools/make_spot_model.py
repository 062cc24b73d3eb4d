"""Make the embedded model of spots: train the spot transformer on Wyscout's leagues, calibrate and pack it.

    python -m tools.make_spot_model train RUN [--steps 1800] [--threads 1]
    python -m tools.make_spot_model pack RUN [--out src/ballcast/samples/spot_model]

`train` writes RUN/model.safetensors and RUN/config.json. It learns from event feeds alone, labelled as broadcasts are,
with a spotter's faults (`data/samples/spot_samples.py`); about half an hour on one core. `pack` fits the calibration of
the probabilities and the knots of the scores on validation matches, halves the weights, and writes the ONNX graph that
reads them by offset, with the model's card.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn import functional

from ballcast import __version__
from ballcast.core.embedded import SPOT_MODEL
from ballcast.core.feed_config import FeedLossConfig, FeedTrainConfig, SpotTransformerConfig
from ballcast.core.files import read_json, replacing, write_bytes, write_json
from ballcast.core.spots import CODES, DETAILS, VALUES, Spots
from ballcast.data.events.event_grid import split_matches
from ballcast.data.events.spot_tokens import tokens_before
from ballcast.data.events.wyscout import read_table
from ballcast.data.samples.feed_samples import FeedEvents, Match, targets_after
from ballcast.data.samples.spot_samples import (
    GOOD,
    POOR,
    as_spots,
    broadcast_match,
    came_within,
    merge_classes,
    with_faults,
)
from ballcast.inference.calibration import fit_calibration
from ballcast.inference.spot_model import GRAPH, INPUTS, OUTPUTS
from ballcast.loss.feed_criterion import feed_criterion
from ballcast.model.event_transformer import CONFIG, WEIGHTS
from ballcast.model.postprocess import select_hits
from ballcast.model.score_mapping import even_knots
from ballcast.model.spot_transformer import SpotOutputs, SpotTransformer, load_spot_transformer, save_spot_transformer
from ballcast.training.ema import Ema
from ballcast.training.optimizer import build_optimizer, warmup_cosine
from benchmarks.events import TABLE
from tools.embed_models import refer
from tools.make_feed_model import SOURCE

CPU = torch.device("cpu")
LOSS = FeedLossConfig(zones=0.0)
CHANCE = 0.5  # weight of the loss of P(at least one), a sum over classes and horizons divided by their number times ten
HIDDEN = (0.0, 0.0, 0.25, 0.3, 0.25)  # share of the samples without each of `DETAILS`; the first two have own labels
PEAKS = 5  # times of each class that are emitted
EVERY_MS = 11_000  # of validation


@dataclass(frozen=True)
class Seen:
    """Matches in one set of classes: the truth, and what spotters see of it, each with when it happened."""

    truth: FeedEvents
    seen: list[tuple[Spots, NDArray[np.int64]]]
    flags: NDArray[np.bool_]  # (details,)


def prepare(feeds: Sequence[Any], rng: np.random.Generator) -> list[Seen]:
    """The matches with all classes, and without high passes and balls out."""
    full = [broadcast_match(feed) for feed in feeds]
    result = []
    for matches, missing in ((full, 0), ([merge_classes(feed) for feed in full], 2)):
        truth = FeedEvents.from_matches([Match(feed) for feed in matches], CPU)
        periods = [half for feed in matches for _, half in feed.periods()]
        assert len(periods) == len(truth.begins), "no period is too short"
        spots = as_spots(periods)
        seen = [(spots, spots.position_ms), with_faults(spots, GOOD, rng), with_faults(spots, POOR, rng)]
        result.append(Seen(truth, seen, np.arange(len(DETAILS)) >= missing))
    return result


def inputs(
    data: Seen, number: int, at: NDArray[np.int64], config: SpotTransformerConfig, rng: np.random.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The network's inputs at times (S,); `rng` hides details."""
    flags = np.tile(data.flags, (len(at), 1))
    if rng is not None:
        flags &= rng.random(flags.shape) >= np.array(HIDDEN)
        flags[:, DETAILS.index("player")] &= flags[:, DETAILS.index("team")]
    spots, known_ms = data.seen[number]
    codes, values = tokens_before(
        spots, at, flags, tokens=config.tokens, observed_ms=config.observed_ms, known_ms=known_ms
    )
    return torch.from_numpy(codes), torch.from_numpy(values), torch.from_numpy(flags).float()


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    rng = np.random.default_rng(args.seed)
    splits = split_matches(read_table(args.data), "full")
    data = prepare(splits["train"][: args.matches], rng)
    config = SpotTransformerConfig()
    model = SpotTransformer(config)
    ema = Ema(model, 0.998)
    optimizer = build_optimizer(model, FeedTrainConfig(lr=args.lr), beta2=0.98)
    began, kept = time.perf_counter(), []
    model.train()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = warmup_cosine(step, args.steps, top=args.lr, warmup=0.04)
        loss = torch.zeros(())
        for one in data:
            share = args.batch // (len(data) * len(one.seen))
            at, _ = one.truth.locate(torch.from_numpy(rng.integers(0, one.truth.total, share * len(one.seen))))
            parts = [inputs(one, i, at[i * share : (i + 1) * share].numpy(), config, rng) for i in range(len(one.seen))]
            slots, chance = model(*(torch.cat(column) for column in zip(*parts, strict=True)))
            targets = targets_after(one.truth, at, config.slots)
            targets.zones.fill_(-1)
            own = functional.binary_cross_entropy_with_logits(chance, came_within(one.truth, at)) * chance.shape[1]
            loss = loss + (feed_criterion(slots, targets, LOSS, one.truth.rates).total + CHANCE * own) / len(data)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ema.update()
        kept.append(float(loss.detach()))
        if step % 50 == 49:
            typer.echo(f"{step + 1}: loss {np.mean(kept[-50:]):.4f}, {time.perf_counter() - began:.0f} s")
    metadata = {"matches": len(splits["train"][: args.matches]), "steps": args.steps, "seed": args.seed}
    metadata |= {"batch": args.batch, "lr": args.lr, "ballcast": __version__}
    with ema.swapped():
        save_spot_transformer(args.run, model, {"metadata": metadata})
    typer.echo(f"{args.run}: {time.perf_counter() - began:.0f} s")


@torch.inference_mode()
def fit(model: SpotTransformer, valid: list[Seen]) -> dict[str, Any]:
    """The calibration of the probabilities, and the knots that spread the scores, on validation matches."""
    config, outputs = model.config, SpotOutputs(model)
    chances, came, scores = [], [], []
    for data in valid:
        at, _ = data.truth.locate(torch.arange(0, data.truth.total, EVERY_MS))
        truth = came_within(data.truth, at).bool().numpy()
        for number in range(len(data.seen)):
            given = inputs(data, number, at.numpy(), config, None)
            parts = [outputs(*(x[i : i + 512] for x in given)) for i in range(0, len(at), 512)]
            intensity, chance = (torch.cat(column).numpy() for column in zip(*parts, strict=True))
            scores.append(select_hits(np.ascontiguousarray(intensity.transpose(1, 0, 2)), PEAKS))
            chances.append(chance)
            came.append(truth)
    calibration = fit_calibration(np.concatenate(chances), np.concatenate(came))
    joined = np.concatenate(scores)
    knots = [list(even_knots(joined[..., c])) for c in range(joined.shape[-1])]
    return {"calibration": np.round(calibration, 5).tolist(), "peaks": PEAKS, "knots": knots}


def pack(args: argparse.Namespace) -> None:
    trained = read_json(args.run / CONFIG, "sizes of the model")
    valid = prepare(split_matches(read_table(args.data), "full")["valid"][: args.matches], np.random.default_rng(1))
    fitted = fit(load_spot_transformer(args.run), valid)
    if args.out.exists():
        shutil.rmtree(args.out)
    with replacing(args.out) as folder:
        folder.mkdir(parents=True)
        config = {key: trained[key] for key in ("kind", "network", "metadata")} | fitted
        config |= {"trained_on": "Wyscout, 2017/18, four leagues without England", "attribution": SOURCE}
        write_json(folder / CONFIG, config | {"license": "CC-BY-4.0"}, indent=1)
        write_bytes(folder / WEIGHTS, save({k: t.half() for k, t in load_file(args.run / WEIGHTS).items()}))
        write_graph(folder, trained["network"]["tokens"])
        millions = sum(t.numel() for t in load_file(folder / WEIGHTS).values()) / 1e6
        write_bytes(folder / "README.md", CARD.format(millions=millions, source=SOURCE).encode())
    size = sum(path.stat().st_size for path in args.out.iterdir())
    typer.echo(f"{args.out}: {size / 1e6:.2f} MB")


def write_graph(folder: Path, tokens: int) -> None:
    """The graph that reads the weights of `folder`."""
    network = SpotOutputs(load_spot_transformer(folder)).eval()
    codes = torch.zeros(2, tokens, CODES, dtype=torch.int64)
    examples = (codes, torch.rand(2, tokens, VALUES), torch.ones(2, len(DETAILS)))
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        path = Path(place) / "raw.onnx"
        axes = {name: {0: "batch"} | ({1: "tokens"} if name in INPUTS[:2] else {}) for name in (*INPUTS, *OUTPUTS)}
        names = {"input_names": list(INPUTS), "output_names": list(OUTPUTS), "dynamic_axes": axes}
        torch.onnx.export(
            network, examples, str(path), dynamo=False, do_constant_folding=False, opset_version=17, **names
        )
        write_bytes(folder / GRAPH, refer(path.read_bytes(), folder / WEIGHTS))


CARD = """---
license: cc-by-4.0
tags: [football, soccer, action spotting]
---
# ballcast: spots

The probability of each of ten ball actions within 1 to 5 seconds, from what an action spotter found in the last 30
seconds of a football video: classes, times, confidences, at best teams and players, no places. An event transformer
with {millions:.2f} million weights in half precision; `spots.onnx` reads them from `model.safetensors`. Use:
`ballcast forecast SPOTS`, or `ballcast.load("spots").spots(path)`.

Trained on {source}. England was held out. The feeds were labelled by rule as broadcasts are (a drive begins when a
player receives the ball and keeps it), and a spotter's faults were drawn: actions missed, doubled, confused, invented,
wrong times and players. Probabilities are calibrated on validation matches of the same leagues with the same faults; on
broadcasts, whose labels differ, they are not.

Keep this attribution with the weights.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    trains = commands.add_parser("train")
    trains.add_argument("run", type=Path)
    trains.add_argument("--steps", type=int, default=1800)
    trains.add_argument("--batch", type=int, default=384)
    trains.add_argument("--lr", type=float, default=2e-3)
    trains.add_argument("--threads", type=int, default=1)
    trains.add_argument("--seed", type=int, default=0)
    packs = commands.add_parser("pack")
    packs.add_argument("run", type=Path)
    packs.add_argument("--out", type=Path, default=SPOT_MODEL)
    for one in (trains, packs):
        one.add_argument("--data", type=Path, default=TABLE, help="wyscout_leagues.parquet")
        one.add_argument("--matches", type=int, help="only so many matches, to see that it works")
    args = parser.parse_args()
    train(args) if args.what == "train" else pack(args)


if __name__ == "__main__":
    main()

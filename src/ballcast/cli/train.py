"""Commands that train."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ballcast.cli.shell import Device, app, new_console, resumable
from ballcast.core.errors import InputError
from ballcast.core.progress import FRAMES, progress_bar


@app.command()
def train(
    config: Annotated[
        Path,
        typer.Argument(
            help="A recipe: paper, e2e, e2e-head, faantra-ws, faantra, feed, events, best, or your YAML file."
        ),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example train.lr=1e-4.")] = None,
    run: Annotated[
        Path, typer.Option("--out", "-o", help="The run's folder; an unfinished run there is resumed.")
    ] = Path("runs/train"),
    device: Device = "auto",
) -> None:
    """Train a model by a recipe; kill it at any time and run the same command to resume.

    Needs a feature store per split (see `ballcast extract`) below data.features; e2e and faantra-ws need the videos
    instead, in the folders of games.sources; feed, the event transformer, needs event feeds in data.source. At the end
    the best epoch's report is OUT/report.html: scores, curves, calibration, timing, confusion, the best and the worst
    clips (not of feed). On several GPUs: torchrun --nproc-per-node 4 -m ballcast train …

    Examples:

    ballcast train paper data.features=features --out runs/paper

    ballcast train e2e games.sources=[snbaa/224p] --out runs/e2e

    ballcast train feed data.source=wyscout_leagues.parquet --out runs/feed
    """
    from ballcast.core.anticipator_config import Recipe
    from ballcast.core.feed_config import load_recipe
    from ballcast.training.data import fit_to_store
    from ballcast.training.distributed import joined
    from ballcast.training.progress import Display
    from ballcast.training.run import train as train_run
    from ballcast.workflows.run_report import report_run

    recipe = load_recipe(config, overrides or ())
    if isinstance(recipe, Recipe):
        recipe = fit_to_store(recipe, overrides or ())
    with joined(device) as (ranks, chosen):
        display = Display(new_console(), recipe.train.epochs, quiet=not ranks.writes)
        with resumable(), display:
            progress = train_run(recipe, run, device=chosen, ranks=ranks, show=display.show, log=display.log)
    if ranks.writes:
        best = (
            f"best validation mAP {100 * progress.best:.2f} in epoch {progress.best_epoch}"
            if progress.best >= 0
            else "no validation"
        )
        typer.echo(f"{run}: {progress.step} steps, {best}; the model is {run / 'best'}")
        if isinstance(recipe, Recipe) and (report := report_run(recipe, run, device=chosen)):
            typer.echo(f"{report}: how it does on the validation clips")


@app.command()
def pretrain(
    config: Annotated[Path, typer.Argument(help="A recipe: pretrain, or your YAML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example train.lr=5e-4.")] = None,
    run: Annotated[
        Path, typer.Option("--out", "-o", help="The run's folder; an unfinished run there is resumed.")
    ] = Path("runs/pretrain"),
    device: Device = "auto",
) -> None:
    """Train a backbone: it learns to spot ball actions in videos with labels.

    Reads SN-BAA as it unpacks, games of SN-BAS, and simulated matches. Scores the held-out games after each epoch:
    average precision of the actions spotted within 1 s. The best backbone is OUT/best, for `ballcast extract`.
    Kill it at any time and run the same command to resume.

    Examples:

    ballcast pretrain pretrain data.sources=[snbaa/224p] --out runs/backbone

    `ballcast pretrain pretrain data.sources=[SN-BAS] "data.train=['*']" "data.valid=['*Leeds*']"`
    """
    from ballcast.core.config import load
    from ballcast.core.pretrain_config import PretrainRecipe
    from ballcast.training.distributed import training_device
    from ballcast.training.progress import Display
    from ballcast.training.run import train as train_run

    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("pretrain is one process on one GPU; start it without torchrun")
    recipe = load(PretrainRecipe, config, overrides or ())
    display = Display(new_console(), recipe.train.epochs, measure="spotting AP")
    with resumable(), display:
        progress = train_run(
            recipe,
            run,
            device=training_device(device),
            show=display.show,
            log=display.log,
            bar=lambda: progress_bar(new_console(stderr=True), unit=FRAMES),
        )
    best = (
        f"best spotting AP {100 * progress.best:.2f} in epoch {progress.best_epoch}"
        if progress.best >= 0
        else "unscored"
    )
    typer.echo(f"{run}: {progress.step} steps, {best}; the backbone is {run / 'best'}")


@app.command()
def ablate(
    config: Annotated[Path, typer.Argument(help="The recipe the variants start from.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for all variants.")] = None,
    variants: Annotated[
        Path | None,
        typer.Option("--variants", help="YAML: name → list of overrides (default: the paper's ablations and more)."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs a variant.")] = 3,
    run: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for all runs; finished ones are not repeated.")
    ] = Path("runs/ablation"),
    split: Annotated[
        list[str] | None,
        typer.Option("--split", help="Score the rows on this split, once for each (default: the validation splits)."),
    ] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="Write the numbers here.")] = None,
    device: Device = "auto",
) -> None:
    """Train and score variants of a recipe, several seeds each, and print one table: mean ± deviation.

    Variants that differ only in emission share one training. Epochs are chosen on the validation splits.

    Example: ballcast ablate paper data.features=features --seeds 3 --split test
    """
    from ballcast.core.files import write_json
    from ballcast.core.util import print_table
    from ballcast.training.ablation import ablate as run_ablation
    from ballcast.training.ablation import read_variants, table
    from ballcast.training.distributed import training_device

    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("ablate is one process; start it without torchrun, or several with a list of variants each")
    with resumable():
        rows = run_ablation(
            config,
            overrides or [],
            read_variants(variants),
            seeds,
            run,
            training_device(device),
            typer.echo,
            split or (),
        )
    print_table(new_console(), table(rows, seeds, split or ()))
    if json_:
        write_json(json_, {row.name: row.as_dict() for row in rows}, indent=1)

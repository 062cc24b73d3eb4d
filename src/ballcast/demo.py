"""`ballcast demo`: the main job on embedded data, on any machine.

Today: the labels of simulated matches, two anticipators that see no video, their scores, a submission that passes the
check, and plots.
"""

from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console

from ballcast.core.clips import Clip
from ballcast.data.soccernet import read_labels
from ballcast.inference.baselines import ClassPrior, Markov
from ballcast.inference.submission import check_submission, write_submission
from ballcast.metrics.average_precision import score
from ballcast.metrics.plots import draw
from ballcast.metrics.report import class_table, score_table


def run(out: Path, console: Console) -> None:
    """Write predictions, a submission and plots into `out`, and tell what each number is."""
    train, test = sample("train"), sample("test")
    console.print(
        f"[bold]1[/] {len(train)} clips of seven simulated matches to learn from, {len(test)} of two others to test on "
        "(Google Research Football; see NOTICE)"
    )
    anticipators: dict[str, ClassPrior | Markov] = {"class prior": ClassPrior(train), "Markov": Markov(train)}
    predictions = {
        name: {clip.name: anticipator.predict(clip) for clip in test} for name, anticipator in anticipators.items()
    }
    scores = {name: score(test, predicted) for name, predicted in predictions.items()}
    console.print(
        "[bold]2[/] anticipated by how often actions come (class prior), and by how often they follow the last one "
        "(Markov, which is told the true past)"
    )
    console.print(score_table(scores))
    console.print(class_table(scores["Markov"]))
    submission = out / "results_anticipation.zip"
    write_submission(submission, predictions["Markov"])
    defects = check_submission(submission, test)
    console.print(f"[bold]3[/] a submission for the challenge's server: {submission}, {len(defects)} defects")
    for path in draw(scores["Markov"], out):
        console.print(f"[bold]4[/] {path}", soft_wrap=True)


def sample(split: str) -> list[Clip]:
    """The embedded clips of a split, labels only."""
    with as_file(files("ballcast") / "samples" / split) as folder:
        return read_labels(folder)

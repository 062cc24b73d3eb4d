"""What a run prints: a line an epoch, with the loss and the score by their names."""

from io import StringIO

import pytest
from rich.console import Console

from ballcast.training.progress import Display, ProgressUpdate


class Score:
    avg = 0.4567


@pytest.mark.parametrize(
    ("measure", "losses", "line"),
    [
        ("mAP", {"total": 1.0, "objectness": 0.5}, "tot 1.000 obj 0.500 lr 1.0e-04 20 samples/s valid mAP 45.67 best"),
        ("spotting AP", {"loss": 0.25}, "loss 0.250 lr 1.0e-04 20 samples/s valid spotting AP 45.67 best"),
    ],
)
def test_an_epochs_line(measure: str, losses: dict[str, float], line: str) -> None:
    out = StringIO()
    with Display(Console(file=out, width=200), 3, measure=measure) as display:
        display.show(ProgressUpdate(0, 5, 10, 1e-4, losses, 20.0))  # no terminal: no bar
        display.show(ProgressUpdate(0, 10, 10, 1e-4, losses, 20.0, Score(), better=True, ended=True))
    assert out.getvalue() == f"epoch 1/3: {line}\n"

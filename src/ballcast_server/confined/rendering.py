"""Render a video with its forecasts drawn below it, in a separate process with bounds, in a sandbox.

`python -m ballcast_server.confined.rendering ORDER` writes the video of an order as JSON; its progress is lines of
"done total" on stdout.
"""

import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ballcast.core.events import Forecast, Gap, Prediction
from ballcast.core.files import read_json, remove_stale
from ballcast.inference.expected_precision import ExpectedPrecision
from ballcast_server.confined.process import run_confined, start
from ballcast_server.confined.sandbox import confine


@dataclass(frozen=True)
class RenderOrder:
    """What the process is asked for.

    Args:
        memory: bytes that it may use.
        file_bytes: size of the file that it may write.
        video: path of the video.
        timeline: path of the forecasts.
        target: path of the file to write.
        begin_ms, end_ms: the part to render; None: to the end.
    """

    memory: int
    file_bytes: int
    video: str
    timeline: str
    target: str
    begin_ms: int
    end_ms: int | None


def render(order: RenderOrder, stall_s: float, progress: Callable[[int], None]) -> tuple[int, str]:
    """Run the process of an order.

    Args:
        order: what to render.
        stall_s: the process is killed if it renders nothing for this long.
        progress: called with the number of frames done; an error it raises kills the process.

    Returns:
        The process's exit code and its report.
    """
    with start(__name__, json.dumps(asdict(order))) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        watchdog = threading.Timer(stall_s, running.kill)
        watchdog.start()
        try:
            for line in running.stdout:
                watchdog.cancel()
                watchdog = threading.Timer(stall_s, running.kill)
                watchdog.start()
                progress(int(line.split()[0]))
            report = running.stderr.read(10_000).decode(errors="replace").strip()
        except BaseException:
            running.kill()
            raise
        finally:
            watchdog.cancel()
        return running.wait(), report


def shown_forecasts(result: dict) -> tuple[list[Forecast], list[Gap]]:
    """The forecasts of a result as the page shows them at first: by expected precision, where it was measured."""
    tree = result.get("precision") or {}
    # Results of earlier versions hold the network's own scores, and the curves to correct them.
    measured = ExpectedPrecision(tree["actions"]) if "actions" in tree else None
    forecasts = []
    for record in result["anticipations"]:
        read = [Prediction(p["label"], p["position_ms"], p["confidence"]) for p in record["predictions"]]
        if measured is not None:
            read = [Prediction(p.label, p.position_ms, measured.of(p.label, p.confidence)) for p in read]
        read = [p for p in read if p.confidence >= tree.get("default", 0)]
        forecasts.append(Forecast(record["at_ms"], tuple(read)))
    return forecasts, [Gap.from_json(gap) for gap in result.get("gaps", ())]


def _write(order: RenderOrder) -> None:
    """Write the video of an order; runs in the process."""
    from ballcast.video.overlay import write_overlay

    folder = Path(order.target).parent
    remove_stale(folder)
    confine(read=[Path(order.video)], write=[folder])
    result = read_json(Path(order.timeline), "timeline")
    forecasts, gaps = shown_forecasts(result)
    write_overlay(
        Path(order.video),
        Path(order.target),
        forecasts,
        gaps,
        note=str(result.get("origin", "")),
        begin_ms=order.begin_ms,
        end_ms=order.end_ms,
        progress=lambda done, total: print(done, total, flush=True),  # noqa: T201
    )


def main(arguments: list[str]) -> int:
    """Entry point of the process; returns its exit code."""
    order = RenderOrder(**json.loads(arguments[0]))

    def work() -> None:
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, order.file_bytes))
        _write(order)

    return run_confined(work, memory=order.memory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A server with a small model, in this process, and a few seconds of video."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from ballcast.core.anticipator_config import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.core.events import Forecast
from ballcast.inference.stream_predictor import StreamPredictor
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.model.anticipator import Anticipator
from ballcast_server.networks import NetworkPolicy
from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Limits, Settings
from ballcast_server.web.server import Server, bind
from ballcast_server.web.server import running as run_server
from ballcast_server.web.service import Service
from benchmarks.serve import Quick
from tests.browser import Browser, open_browser
from tests.features.conftest import SMALL, small_backbone
from tests.video.conftest import make_video

LOOPBACK = NetworkPolicy.parse(["127.0.0.0/8"])
LIMITS = Limits(free_bytes=0, slice_s=0.2)


def small_model() -> Anticipator:
    """Every slot speaks, so that there is always something to see."""
    torch.manual_seed(1)
    sizes = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
    config = ModelConfig(width=SMALL.width, hierarchy=HierarchyConfig(**sizes, decoder_layers=2))
    backbone = {"hash": small_backbone().hash, "name": "small-0"}
    return Anticipator(config, emit=EmitConfig(threshold=0.0), metadata={"backbone": backbone}).eval()


@pytest.fixture(scope="session")
def predictors() -> PredictorFactory:
    torch.set_num_threads(1)
    model, backbone = small_model(), small_backbone()
    return PredictorFactory(
        lambda: StreamPredictor(TorchRuntime(model, backbone)), {"every_ms": 1000, "model": "small"}
    )


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 s of 64 × 32 in MP4."""
    return make_video(tmp_path_factory.mktemp("clip") / "clip.mp4", range(300), size=(32, 64))


@pytest.fixture(scope="session")
def quick() -> PredictorFactory:
    return PredictorFactory(Quick, {"every_ms": 1000, "model": "none"})  # type: ignore[arg-type]


def paused(frames: int = 0) -> tuple[PredictorFactory, threading.Event]:
    """A quick predictors that stands still after so many frames until the event is set."""
    release = threading.Event()

    class Held(Quick):
        def push(self, frame: np.ndarray) -> Forecast | None:
            if self.frames >= frames:
                release.wait(20)
            return super().push(frame)

    return PredictorFactory(Held, {}), release  # type: ignore[arg-type]


@dataclass
class Running:
    """A server that runs; `client` speaks to it, `url` is its address without a slash at the end."""

    service: Service
    server: Server
    url: str
    client: httpx.Client
    thread: threading.Thread

    def upload(self, path: Path, name: str = "clip.mp4", **headers: str) -> httpx.Response:
        return self.client.post("/api/uploads", content=path.read_bytes(), headers={"X-File-Name": name, **headers})

    def gone(self, seconds: float = 15) -> None:
        """Waits until the server, which was told to stop, has."""
        until = time.monotonic() + seconds
        while self.thread.is_alive():
            assert time.monotonic() < until, "the server does not stop"
            time.sleep(0.02)

    def until(self, job_id: str, *states: str, seconds: float = 30) -> dict:
        """The job when it is in one of the states."""
        for _ in range(int(seconds / 0.05)):
            job = self.client.get(f"/api/jobs/{job_id}").json()
            if job["state"] in states:
                return job
            threading.Event().wait(0.05)
        raise AssertionError(f"the job did not become {states} within {seconds} s: {job}")


@contextmanager
def running(settings: Settings, predictors: PredictorFactory, port: int = 0, **how: object) -> Iterator[Running]:
    """A server of these settings, and a client of it."""
    service, listener = Service(settings, predictors, **how), bind("127.0.0.1", port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with run_server(service, listener) as (server, thread), httpx.Client(base_url=url, timeout=30) as client:
        yield Running(service, server, url, client, thread)


Serve = Callable[..., Running]


@pytest.fixture
def serving(tmp_path: Path, quick: PredictorFactory) -> Iterator[Serve]:
    """`serving(limits={…}, streams={…}, …)` starts a server, with the settings' defaults but for these."""
    with ExitStack() as stack:

        def start(
            *,
            limits: dict | None = None,
            predictors: PredictorFactory = quick,
            how: dict | None = None,
            **given: object,
        ) -> Running:
            own = {"data": tmp_path / "data", "limits": replace(LIMITS, **(limits or {})), "networks": LOOPBACK}
            settings = Settings(**{**own, **given})
            return stack.enter_context(running(settings, predictors, **(how or {})))

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture
def clean_browser(browser: Browser, serving: Serve) -> Iterator[None]:
    """Each test ends without an error in the console, and leaves no page that asks a server that is gone."""
    browser.errors()
    yield
    if browser.driver.current_url.startswith("http"):
        browser.run("localStorage.clear()")
    browser.show("about:blank")
    assert browser.errors() == []

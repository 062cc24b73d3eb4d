"""A server with a small model, in this process, and a few seconds of video."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import torch

from ballcast.core.recipe import EmitConfig, HierarchyConfig, ModelConfig
from ballcast.inference.rolling import RollingAnticipator
from ballcast.model.anticipator import Anticipator
from ballcast.web.engine import Engine
from ballcast.web.house import House
from ballcast.web.server import Server, bind, serve
from ballcast.web.settings import Limits, Settings
from tests.features.conftest import SMALL, small_backbone
from tests.video.conftest import make_video

LIMITS = Limits(free_bytes=0, slice_s=0.2)


def small_model() -> Anticipator:
    """Every slot speaks, so that there is always something to see."""
    torch.manual_seed(1)
    sizes = {"dim": 16, "encoder_heads": 2, "encoder_ffn": 32, "decoder_heads": 2, "decoder_ffn": 32}
    config = ModelConfig(width=SMALL.width, hierarchy=HierarchyConfig(**sizes, decoder_layers=2))
    backbone = {"hash": small_backbone().hash, "name": "small-0"}
    return Anticipator(config, emit=EmitConfig(threshold=0.0), metadata={"backbone": backbone}).eval()


@pytest.fixture(scope="session")
def engine() -> Engine:
    torch.set_num_threads(1)
    model, backbone = small_model(), small_backbone()
    return Engine(lambda: RollingAnticipator(model, backbone), {"every_ms": 1000, "model": "small"})


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 s of 64 × 96 in MP4."""
    return make_video(tmp_path_factory.mktemp("clip") / "clip.mp4", range(300))


@dataclass
class Running:
    """A server that runs; `client` speaks to it, `url` is its address without a slash at the end."""

    house: House
    server: Server
    url: str
    client: httpx.Client

    def upload(self, path: Path, name: str = "clip.mp4", **headers: str) -> httpx.Response:
        return self.client.post("/api/uploads", content=path.read_bytes(), headers={"X-File-Name": name, **headers})

    def until(self, job_id: str, *states: str, seconds: float = 30) -> dict:
        """The job when it is in one of the states."""
        for _ in range(int(seconds / 0.05)):
            job = self.client.get(f"/api/jobs/{job_id}").json()
            if job["state"] in states:
                return job
            threading.Event().wait(0.05)
        raise AssertionError(f"the job did not become {states} within {seconds} s: {job}")


@contextmanager
def running(settings: Settings, engine: Engine, **how: object) -> Iterator[Running]:
    """A server in a thread of its own; stopped at the end as by Ctrl-C."""
    house, listener = House(settings, engine, **how), bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    started: list[Server] = []
    ready, failed = threading.Event(), []

    def note(server: Server) -> None:
        started.append(server)
        ready.set()

    def run() -> None:
        try:
            asyncio.run(serve(house, listener, note))
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(30)
    try:
        if failed:
            raise failed[0]
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=30) as client:
            yield Running(house, started[0], url, client)
    finally:
        for server in started:
            server.end()
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the server does not stop"


Serve = Callable[..., Running]


@pytest.fixture
def serving(tmp_path: Path, engine: Engine) -> Iterator[Serve]:
    """`serving(limits={…}, streams={…}, …)` starts a server, with the settings' defaults but for these."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(
            *, limits: dict | None = None, engine: Engine = engine, how: dict | None = None, **given: object
        ) -> Running:
            settings = Settings(**{"data": tmp_path / "data", "limits": replace(LIMITS, **(limits or {})), **given})
            return stack.enter_context(running(settings, engine, **(how or {})))

        yield start

"""Take the pictures of docs/serve.md: the page in a real Chromium, with a model at work on labelled videos.

    python -m tools.make_screenshots --videos ../shared/data/simbaa --name match_010.mp4 --at 62

Without --model and --backbone the embedded ones are used. The video is anticipated along from its start, so a short one
is quicker. Needs chromium and chromium-driver, and the development tools.
"""

import argparse
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image

from ballcast.core.hub import choose_models
from ballcast.inference.torch_runtime import TorchRuntime
from ballcast.web.settings import Settings, make_engine
from tests.browser import PHONE, Browser, open_browser
from tests.web.conftest import LIMITS, Running, running

OUT = Path(__file__).parent.parent / "docs" / "images"
MOST = 150_000  # bytes of a picture


def shoot(browser: Browser, name: str, *, whole: bool = False) -> None:
    """The page as it is, as WebP small enough for the repository."""
    with tempfile.TemporaryDirectory() as folder:
        browser.screenshot(Path(folder) / "page.png", whole=whole)
        picture = Image.open(Path(folder) / "page.png").convert("RGB")
    for quality in (90, 80, 70, 60, 50):
        written = BytesIO()
        picture.save(written, "webp", quality=quality, method=6)
        if len(written.getvalue()) <= MOST:
            break
    target = OUT / f"{name}.webp"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(written.getvalue())


def watch(browser: Browser, server: Running, job: str, at: float, **how: object) -> None:
    """The video's page at `at` seconds, everything drawn."""
    browser.show("about:blank")
    browser.show(f"{server.url}/#/job/{job}", **how)  # type: ignore[arg-type]
    browser.wait(lambda: browser.run("return document.querySelector('video')?.readyState >= 2"), "the video")
    browser.run("document.querySelector('video').currentTime = arguments[0]", at)
    browser.wait(lambda: browser.run("return !document.querySelector('video').seeking"), "the seek")
    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--videos", type=Path, required=True, help="a folder of videos with labels beside them")
    parser.add_argument("--name", required=True, help="the one to show, as the page lists it")
    parser.add_argument("--at", type=float, default=25.0, help="seconds")
    parser.add_argument("--live", type=float, default=20.0, help="seconds the stream is watched before its picture")
    parser.add_argument("--model")
    parser.add_argument("--backbone")
    given = parser.parse_args()
    runtime = TorchRuntime.load(*choose_models(given.model, given.backbone, "this"), device="cpu")
    engine = make_engine(runtime.another, every_ms=1000)
    with tempfile.TemporaryDirectory() as data, open_browser() as browser:
        streams = {"pitch": str(given.videos / given.name)}
        settings = Settings(data=Path(data), videos=given.videos, streams=streams, limits=LIMITS)
        with running(settings, engine) as server:
            chosen = [v["id"] for v in server.client.get("/api/videos").json() if v["name"] == given.name]
            job = server.client.post("/api/jobs", json={"video": chosen[0]}).json()["id"]
            assert server.until(job, "done", "failed", seconds=3600)["state"] == "done"
            for theme in ("dark", "light"):
                watch(browser, server, job, given.at, theme=theme)
                shoot(browser, f"serve-{theme}")
            watch(browser, server, job, given.at, theme="dark", width=PHONE, height=844)
            shoot(browser, "serve-phone", whole=True)
            browser.show("about:blank")
            browser.show(server.url, theme="light")
            browser.wait(lambda: browser.all("[data-job]"), "the jobs")
            time.sleep(0.5)
            shoot(browser, "serve-home")
            browser.show("about:blank")
            browser.show(f"{server.url}/#/stream/pitch", theme="dark")
            time.sleep(given.live)
            seen = "return Boolean(document.querySelector('.badge.live') && document.querySelector('.third li'))"
            browser.wait(lambda: browser.run(seen), "a live anticipation; is the machine too busy?", 60)
            shoot(browser, "serve-live")
            assert browser.errors() == []


if __name__ == "__main__":
    main()

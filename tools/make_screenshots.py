"""Take the pictures of docs/serve.md: the page in a real Chromium, with a model at work on labelled videos.

    python -m tools.make_screenshots                            # after a change of the page or of the embedded model

Without --model and --backbone the embedded ones are used. The video is anticipated along from its start, so a short one
is quicker; --data keeps the result for the next run. Needs chromium and chromium-driver, and the development tools.
"""

import argparse
import tempfile
import time
from io import BytesIO
from pathlib import Path

from PIL import Image

from ballcast.api import load
from ballcast_server.predictors import make_predictor_factory
from ballcast_server.settings import Settings
from tests.browser import PHONE, Browser, open_browser
from tests.server.conftest import LIMITS, Running, running

OUT = Path(__file__).parent.parent / "docs" / "images"
SHARED = Path(__file__).parent.parent.parent / "shared" / "data" / "simbaa"
MOST = 150_000  # bytes of a picture


def shoot(browser: Browser, target: Path, *, whole: bool = False) -> None:
    """The page as it is, as WebP small enough for the repository."""
    with tempfile.TemporaryDirectory() as folder:
        browser.screenshot(Path(folder) / "page.png", whole=whole)
        picture = Image.open(Path(folder) / "page.png").convert("RGB")
    for quality in (90, 80, 70, 60, 50):
        written = BytesIO()
        picture.save(written, "webp", quality=quality, method=6)
        if len(written.getvalue()) <= MOST:
            break
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
    parser.add_argument("--videos", type=Path, default=SHARED, help="a folder of videos with labels beside them")
    parser.add_argument("--name", default="match_009.mp4", help="the one to show, as the page lists it")
    parser.add_argument("--at", type=float, default=62.0, help="seconds")
    parser.add_argument("--data", type=Path, help="the server's folder, to use a result again")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the pictures")
    parser.add_argument("--live", type=float, default=20.0, help="seconds the stream is watched before its picture")
    parser.add_argument("--model")
    parser.add_argument("--backbone")
    given = parser.parse_args()
    model = load(given.model, backbone=given.backbone)
    engine = make_predictor_factory(model.new_runtime, every_ms=1000, precision=model.precision)
    with tempfile.TemporaryDirectory() as data, open_browser() as browser:
        streams = {"pitch": str(given.videos / given.name)}
        settings = Settings(data=given.data or Path(data), videos=given.videos, streams=streams, limits=LIMITS)
        with running(settings, engine) as server:
            jobs = [job["id"] for job in server.client.get("/api/jobs").json() if job["name"] == given.name]
            chosen = [v["id"] for v in server.client.get("/api/videos").json() if v["name"] == given.name]
            job = jobs[0] if jobs else server.client.post("/api/jobs", json={"video": chosen[0]}).json()["id"]
            assert server.until(job, "done", "failed", seconds=3600)["state"] == "done"
            for theme in ("dark", "light"):
                watch(browser, server, job, given.at, theme=theme, height=1080)
                shoot(browser, given.out / f"serve-{theme}.webp")
                watch(browser, server, job, given.at, theme=theme, width=PHONE, height=844)
                shoot(browser, given.out / f"serve-phone-{theme}.webp", whole=True)
            for name, how in (("home", {"theme": "light"}), ("home-phone", {"theme": "dark", "width": PHONE})):
                browser.show("about:blank")
                browser.show(server.url, **how)  # type: ignore[arg-type]
                browser.wait(lambda: browser.all("[data-job]"), "the jobs")
                time.sleep(0.5)
                shoot(browser, given.out / f"serve-{name}.webp")
            browser.show("about:blank")
            browser.show(f"{server.url}/#/stream/pitch", theme="dark")
            time.sleep(given.live)
            seen = "return Boolean(document.querySelector('.badge.live') && document.querySelector('.third li'))"
            browser.wait(lambda: browser.run(seen), "a live anticipation; is the machine too busy?", 60)
            shoot(browser, given.out / "serve-live.webp")
            assert browser.errors() == []


if __name__ == "__main__":
    main()

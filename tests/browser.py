"""Drives a real Chromium, headless, for the tests of pages; without one on the machine they skip.

    with open_browser() as browser:
        browser.show("file:///…/report.html", width=390, theme="dark")
        assert not browser.errors()
        assert browser.overflow() <= 0
        browser.find("button.theme").click()
        browser.screenshot(tmp_path / "phone.png")

Debian: `apt-get install chromium chromium-driver`; `make test` does so where it may. `driver` is selenium's, for all
that is not here.
"""

import base64
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

try:
    from selenium import webdriver
    from selenium.webdriver.remote.webelement import WebElement
except ImportError:  # the tests that need it skip
    webdriver = None  # type: ignore[assignment]

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",  # a phone's scroll bars take no width
    "--autoplay-policy=no-user-gesture-required",
)
PHONE = 390  # px, the narrowest page that must not scroll sideways


class Browser:
    """A window of Chromium; `driver` is selenium's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(
        self, address: str, *, width: int = 1280, height: int = 900, theme: Literal["light", "dark"] = "light"
    ) -> None:
        """Load a page in a window of `width` × `height` CSS pixels for a viewer who prefers `theme`."""
        self.size(width, height)
        self.prefer(theme)
        self.driver.get(address)

    def size(self, width: int, height: int = 900) -> None:
        """As on a device of that size; below 500 px with touch and a phone's viewport."""
        phone = width < 500
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        self._devtools("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, theme: Literal["light", "dark"]) -> None:
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def find(self, css: str) -> "WebElement":
        """The first element the selector names; selenium's error if there is none."""
        return self.driver.find_element("css selector", css)

    def all(self, css: str) -> "list[WebElement]":
        return self.driver.find_elements("css selector", css)

    def run(self, script: str, *args: Any) -> Any:
        """The value a script returns, as in `browser.run("return document.title")`."""
        return self.driver.execute_script(script, *args)

    def wait(self, ready: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        """The first true value of `ready()`; an AssertionError that names `what` if none came in time."""
        until = time.monotonic() + seconds
        while not (value := ready()):
            assert time.monotonic() < until, f"waited {seconds} s in vain for {what}; console: {self.errors()}"
            time.sleep(0.05)
        return value

    def errors(self) -> list[str]:
        """What the console holds of errors and warnings since the last call."""
        return [f"{e['level']}: {e['message']}" for e in self.driver.get_log("browser") if e["level"] != "INFO"]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window; 0 if it does not scroll sideways."""
        return self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def text(self) -> str:
        """All text that can be seen."""
        return self.run("return document.body.innerText")

    def serious(self) -> list[str]:
        """What axe finds serious or critical on the page."""
        spec = find_spec("axe_playwright_python")
        if spec is None or not spec.submodule_search_locations:
            pytest.skip("needs axe-playwright-python, for its axe.min.js")
        self.run((Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[0])")
        assert found["passes"]  # it looked at something
        return [
            f"{v['id']} ({v['impact']}): {node['html'][:120]}"
            for v in found["violations"]
            if v["impact"] in ("serious", "critical")
            for node in v["nodes"]
        ]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """The window as PNG, or the whole page however long it is."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            page = self._devtools("Page.getLayoutMetrics")["cssContentSize"]
            options |= {"captureBeyondViewport": True, "clip": {**page, "scale": 1}}
        path.write_bytes(base64.b64decode(self._devtools("Page.captureScreenshot", **options)["data"]))

    def _devtools(self, command: str, **options: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, options)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A Chromium of its own with an empty profile, closed at the end; skips the test if the machine has none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if webdriver is None or chromium is None or driver is None:
        pytest.skip("needs selenium, chromium and chromedriver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        window = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
        try:
            yield Browser(window)
        finally:
            window.quit()

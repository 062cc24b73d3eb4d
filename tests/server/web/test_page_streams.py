"""The page of the streams in a real Chromium: added, changed, paused and removed, by those who may."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PHONE, Browser
from stream_server import DrippingServer

from ballcast.live.session import LiveSession
from ballcast.video.sources import open_source
from ballcast_server.predictors import PredictorFactory
from tests.server.conftest import Running, Serve
from tests.video.conftest import make_video

pytestmark = pytest.mark.usefixtures("clean_browser")
ADMIN = "the token of the administrator"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stream of several minutes."""
    raw = make_video(tmp_path_factory.mktemp("stream") / "a.ts", range(4000), size=(32, 64)).read_bytes()
    pieces = [raw[at : at + len(raw) // 1000] for at in range(0, len(raw), len(raw) // 1000)]
    with DrippingServer(pieces, every_s=0.04) as server:
        yield server.address


@pytest.fixture
def how(quick: PredictorFactory) -> dict[str, Any]:
    return {"sessions": lambda address, *_, **_how: LiveSession(open_source(address, speed=4), quick.new())}


def fill(browser: Browser, **fields: str | bool) -> None:
    """Type into the form as a user does; the fields by their names, thresholds by their actions."""
    for name, value in fields.items():
        field = browser.find(f'#form [name="{name}"], #form [data-action="{name}"]')
        if isinstance(value, bool):
            if field.is_selected() != value:
                field.click()
        else:
            field.clear()
            field.send_keys(value)


def save(browser: Browser) -> None:
    browser.find("#form button.first").click()


def row(browser: Browser, name: str) -> str:
    """What the page says of a stream; "" if it is not there."""
    return browser.run("return document.querySelector(`[data-name='${arguments[0]}']`)?.innerText ?? ''", name)


def state(browser: Browser, name: str) -> str:
    return browser.run("return document.querySelector(`[data-name='${arguments[0]}']`)?.dataset.state ?? ''", name)


def refused(browser: Browser, words: str, status: int) -> None:
    """The page says why it was not done, and the console holds nothing but the answer's status."""
    browser.wait(lambda: words in browser.find("#toast").text, f"the toast {words!r}")
    assert all(str(status) in error for error in browser.errors())


def stored(server: Running) -> list[dict[str, Any]]:
    return json.loads((server.service.settings.data / "streams.json").read_text())


def test_add_change_pause_and_remove(serving: Serve, browser: Browser, address: str, how: dict[str, Any]) -> None:
    server = serving(how=how)
    browser.show(f"{server.url}/streams")
    browser.wait(lambda: "There are no streams yet" in browser.text(), "the page")

    fill(browser, name="pitch", address=address, SHOT="30")
    save(browser)
    browser.wait(lambda: state(browser, "pitch") == "running", "the stream")
    assert "alerts: shot 30 %" in row(browser, "pitch")
    assert "1 streams, 1 of them followed now" in browser.text()
    assert browser.find("#form [name=name]").get_attribute("value") == ""  # ready for the next one
    assert stored(server)[0]["alerts"] == {"SHOT": 0.3}

    fill(browser, name="other", address="/etc/passwd")
    save(browser)
    refused(browser, "give the address of a stream", 422)
    assert browser.find("#form [name=name]").get_attribute("value") == "other"  # to be corrected
    assert [each["name"] for each in stored(server)] == ["pitch"]

    browser.find("[aria-label='Change pitch']").click()
    assert browser.find("#form [name=name]").get_attribute("value") == "pitch"
    assert browser.find("#form [data-action=SHOT]").get_attribute("value") == "30"
    assert browser.find("#form [name=address]").get_attribute("value") == ""  # may hold a password
    fill(browser, address=address, SHOT="", PASS="55", always=False)  # paused, as long as nobody watches
    save(browser)
    browser.wait(lambda: state(browser, "pitch") == "idle", "the pause")
    assert "alerts: pass 55 %" in row(browser, "pitch")
    assert stored(server)[0]["alerts"] == {"PASS": 0.55}

    browser.find("[aria-label='Change pitch']").click()
    fill(browser, address=address, always=True, clips=True)
    save(browser)
    browser.wait(lambda: state(browser, "pitch") == "running", "the stream")
    assert "with clips" in row(browser, "pitch")

    browser.find("[aria-label='Remove pitch']").click()
    browser.wait(lambda: "There are no streams yet" in browser.text(), "the end")
    assert stored(server) == []
    assert not server.service.streams


def test_an_alert_needs_a_threshold_of_1_to_100(serving: Serve, browser: Browser, address: str) -> None:
    server = serving()
    browser.show(f"{server.url}/streams")
    browser.wait(lambda: browser.all("#form [data-action=SHOT]"), "the form")
    fill(browser, name="pitch", address=address, SHOT="250")
    save(browser)
    assert browser.run("return document.querySelector('[data-action=SHOT]').validity.rangeOverflow")
    assert not server.service.streams
    fill(browser, SHOT="", clips=True)
    save(browser)
    refused(browser, "clips are kept of alerts", 422)
    assert not server.service.streams


def test_a_viewer_changes_nothing(serving: Serve, browser: Browser, address: str, how: dict[str, Any]) -> None:
    server = serving(how=how, token=ADMIN)
    server.client.headers["Authorization"] = f"Bearer {ADMIN}"
    assert server.client.put("/api/streams/pitch", json={"address": address}).status_code == 200
    viewer = server.service.tokens.add("desk", "viewer")
    browser.show(f"{server.url}/login#{viewer}")
    browser.wait(lambda: browser.all(".home"), "the page")
    browser.show(f"{server.url}/streams")
    browser.wait(lambda: row(browser, "pitch"), "the stream")
    before = stored(server)
    for change in ("add", "change", "remove"):
        if change == "remove":
            browser.find("[aria-label='Remove pitch']").click()
        else:
            fill(browser, name="pitch" if change == "change" else "mine", address=address, SHOT="10")
            save(browser)
        refused(browser, "viewer", 403)
        browser.run("document.getElementById('toast').textContent = ''")
    assert stored(server) == before
    assert list(server.service.streams) == ["pitch"]


@pytest.mark.parametrize("width", [1280, PHONE])
def test_axe_and_a_phone(
    serving: Serve, browser: Browser, address: str, how: dict[str, Any], clip: Path, width: int
) -> None:
    server = serving(how=how, streams={"fixed": str(clip)})
    long, gone = "a" * 40, "tcp://127.0.0.1:1"
    alerts = {"SHOT": 0.3, "HIGH PASS": 0.25, "OUT": 0.4}
    server.client.put(f"/api/streams/{long}", json={"address": address, "alerts": alerts, "clips": True})
    server.client.put("/api/streams/gone", json={"address": gone})
    browser.show(f"{server.url}/streams", width=width, height=844)
    browser.wait(lambda: state(browser, long) == "running", "the stream")
    browser.wait(lambda: "reconnecting" in row(browser, "gone"), "the one that is not there")
    assert gone not in browser.text()
    assert "from the command line" in row(browser, "fixed")
    fill(browser, name="other", address="nonsense")
    save(browser)
    refused(browser, "give the address of a stream", 422)
    assert browser.overflow() <= 0
    assert browser.serious() == []

"""The page in a real Chromium, as somebody at a screen or a phone uses it."""

import time
from pathlib import Path

import pytest
from browser import PHONE, Browser

from ballcast.core.events import Event
from ballcast.data.labels.osl import write_osl
from ballcast.live.session import LiveSession
from ballcast.video.sources import open_source
from ballcast_server.predictors import PredictorFactory
from ballcast_server.settings import Settings
from ballcast_server.streams import stream as streams
from tests.server.conftest import LIMITS, Running, Serve, paused, running
from tests.video.conftest import make_video

NOT_CONNECTED = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY_RESPONSE", "Failed to load resource")


pytestmark = pytest.mark.usefixtures("clean_browser")


def open_watch(browser: Browser, server: Running, job_id: str, **how: object) -> None:
    browser.show(f"{server.url}/#/job/{job_id}", **how)
    browser.wait(lambda: browser.run("return document.querySelector('video')?.readyState >= 2"), "the video")


def at(browser: Browser, ms: int) -> None:
    """Go to that time of the video, and wait until the figures are of it."""
    browser.run("document.querySelector('video').currentTime = arguments[0] / 1000", ms)
    browser.wait(lambda: browser.run("return !document.querySelector('video').seeking"), "the seek")
    time.sleep(0.4)


def inked(browser: Browser) -> int:
    """How many pixels right of the lanes' names are of a colour: predictions, verdicts, events and the line of now."""
    return browser.run(
        """const from = document.querySelector("canvas"), c = document.createElement("canvas");
        [c.width, c.height] = [from.width, from.height];
        const pen = c.getContext("2d", {willReadFrequently: true});
        pen.drawImage(from, 0, 0);
        const p = pen.getImageData(110, 24, c.width - 110, c.height - 24).data;
        let n = 0;
        for (let i = 0; i < p.length; i += 4)
            if (Math.max(p[i], p[i + 1], p[i + 2]) - Math.min(p[i], p[i + 1], p[i + 2]) > 70) n += 1;
        return n;"""
    )


def expected_score(
    timeline: dict, events: list[tuple[str, int]], now: int, tolerance: int
) -> tuple[int, int, int, int]:
    """Right, judged, foreseen and all, by the rule's words: of each moment, the surest first, the nearest event."""
    right = judged = 0
    foreseen = set()
    for made in timeline["anticipations"]:
        if made["at_ms"] > now:
            continue
        free = [e for e in events if e[1] >= made["at_ms"]]
        for p in sorted(made["predictions"], key=lambda p: -p["confidence"]):
            near = [e for e in free if e[0] == p["label"] and abs(e[1] - p["position_ms"]) <= tolerance]
            if near:
                event = min(near, key=lambda e: abs(e[1] - p["position_ms"]))
                free.remove(event)
                if now >= event[1]:
                    right, judged = right + 1, judged + 1
                    foreseen.add(event)
            elif now > p["position_ms"] + tolerance:
                judged += 1
    first = timeline["anticipations"][0]["at_ms"]
    return right, judged, len(foreseen), sum(first <= e[1] <= now for e in events)


def test_upload_watch_and_filter(serving: Serve, browser: Browser, clip: Path, tmp_path: Path) -> None:
    server = serving()
    browser.show(server.url)
    browser.wait(lambda: browser.all("#file"), "the page")
    browser.find("#file").send_keys(str(clip))
    browser.wait(lambda: browser.all("[data-state=done]"), "the job", 40)
    (job,) = server.client.get("/api/jobs").json()
    timeline = server.client.get(f"/api/jobs/{job['id']}/timeline").json()
    browser.find("[data-state=done] a.first").click()
    browser.wait(lambda: browser.run("return document.querySelector('video')?.readyState >= 2"), "the video")
    browser.wait(lambda: "without labels nothing is judged" in browser.text(), "the figures")

    body = browser.find("body")
    body.send_keys(" ")
    browser.wait(lambda: browser.run("return document.querySelector('video').currentTime > 0.3"), "playing")
    body.send_keys(" ")
    assert browser.run("return document.querySelector('video').paused")

    predictions = [(p["label"], p["position_ms"]) for m in timeline["anticipations"] for p in m["predictions"]]
    events = sorted({predictions[0], predictions[5], ("SHOT", 7400)}, key=lambda e: e[1])
    write_osl(tmp_path / "labels.json", {"clip": [Event(*e) for e in events]})
    browser.find("#labels").send_keys(str(tmp_path / "labels.json"))
    for tolerance in (1000, 500):
        browser.run(
            """const select = document.querySelector('select[aria-label=Tolerance]');
            select.value = arguments[0];
            select.dispatchEvent(new Event('change'))""",
            str(tolerance),
        )
        for now in (6000, 9500, 11_900):
            at(browser, now)
            right, judged, foreseen, all_ = expected_score(timeline, events, now, tolerance)
            words = f"{right} of {judged} predictions, {foreseen} of {all_} actions"
            browser.wait(lambda words=words: words in browser.text(), f"{words!r} at {now}, ± {tolerance}")
    assert judged > 0
    assert right > 0

    at(browser, 9100)
    browser.find("#clip").click()
    browser.wait(lambda: "Clip 0:01 to 0:16" in browser.find(".tools").text, "the clip's row")
    assert browser.all(".third li")
    before = inked(browser)
    for key in "1234567890":
        body.send_keys(key)
    time.sleep(0.4)
    assert not browser.all(".third li")
    assert inked(browser) < before - 300  # the line of now is left
    assert [b.get_attribute("aria-pressed") for b in browser.all(".action")] == ["false"] * 10
    body.send_keys("a")
    browser.wait(lambda: inked(browser) > before - 100, "the actions")
    body.send_keys("?")
    assert browser.run("return document.getElementById('keys').open")
    browser.find("#keys button").click()
    before = browser.run("return getComputedStyle(document.body).color")
    body.send_keys("t")
    assert browser.run("return getComputedStyle(document.body).color") != before
    link = browser.wait(lambda: browser.all(".renders a"), "the clip's link", 90)[0].get_attribute("href")
    assert server.client.get(link).headers["content-type"] == "video/mp4"


def test_a_video_that_the_browser_cannot_play(serving: Serve, browser: Browser, tmp_path: Path) -> None:
    """Its codec is named, and clock and axis work without it."""
    server = serving()
    video = make_video(tmp_path / "hevc.mp4", range(160), codec="libx265", size=(64, 64))
    job = server.upload(video, "hevc.mp4").json()
    assert job["codec"] == "hevc"
    server.until(job["id"], "done")
    browser.show(f"{server.url}/#/job/{job['id']}")
    browser.wait(lambda: "cannot play the video (hevc)" in browser.text(), "the codec")
    browser.find("body").send_keys(" ")
    browser.wait(lambda: browser.find(".time").text.startswith("0:01"), "the clock")


def test_a_file_name_is_text(serving: Serve, browser: Browser, clip: Path, tmp_path: Path) -> None:
    server = serving()
    name = "<img src=x onerror=alert(1)>&amp;'\".mp4"
    (tmp_path / name).write_bytes(clip.read_bytes())
    browser.show(server.url)
    browser.wait(lambda: browser.all("#file"), "the page")
    browser.find("#file").send_keys(str(tmp_path / name))
    browser.wait(lambda: browser.all("[data-job]"), "the job")
    assert browser.find("[data-job] strong").text == name
    assert not browser.all("[data-job] img")
    (job,) = server.client.get("/api/jobs").json()
    server.until(job["id"], "done")
    open_watch(browser, server, job["id"])
    assert browser.find("#here").text == name


def test_cancel(serving: Serve, browser: Browser, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held)
    job = server.upload(clip).json()
    browser.show(server.url)
    browser.wait(lambda: browser.all("[data-state=running]"), "the running job")
    browser.run("[...document.querySelectorAll('[data-job] button')].find(b => b.textContent === 'Cancel').click()")
    browser.wait(lambda: browser.all("[data-state=cancelled]"), "the cancelled job")
    assert server.client.get(f"/api/jobs/{job['id']}").json()["state"] == "cancelled"
    release.set()
    browser.find("[data-job] button.remove").click()
    browser.wait(lambda: not browser.all("[data-job]"), "the job to go")
    assert server.client.get("/api/jobs").json() == []


def test_the_server_restarts_in_between(browser: Browser, clip: Path, quick: PredictorFactory, tmp_path: Path) -> None:
    """The page stays open, the job goes on, and the page shows it."""
    held, release = paused()
    settings = Settings(data=tmp_path / "data", limits=LIMITS)
    with running(settings, held) as first:
        job = first.upload(clip).json()
        port = int(first.url.rsplit(":", 1)[1])
        browser.show(first.url)
        browser.wait(lambda: browser.all("[data-state=running]"), "the running job")
        first.server.end()
        release.set()
    time.sleep(2)  # the page asks in vain
    with running(settings, quick, port=port) as second:
        browser.wait(lambda: browser.all("[data-state=done]"), "the job done by the second server", 40)
        open_watch(browser, second, job["id"])
        at(browser, 8000)
        assert browser.all(".third li")
        browser.show("about:blank")
    assert [e for e in browser.errors() if not any(word in e for word in NOT_CONNECTED)] == []


@pytest.mark.parametrize("at_its_end", [False, True])
def test_the_server_restarts_while_a_job_is_watched(
    browser: Browser, clip: Path, quick: PredictorFactory, tmp_path: Path, at_its_end: bool
) -> None:
    """The page that watches goes on by itself, to the results."""
    held, release = paused(150)
    settings = Settings(data=tmp_path / "data", limits=LIMITS)
    with running(settings, held) as first:
        job = first.upload(clip).json()
        port = int(first.url.rsplit(":", 1)[1])
        open_watch(browser, first, job["id"])
        browser.wait(lambda: "computed up to 0:06" in browser.find(".badge").text, "half of it")
        if at_its_end:  # it is done in the server's last moment, and its results can no longer be fetched
            release.set()
        first.server.end()
        first.service.workers._stopping = not at_its_end
        release.set()
    time.sleep(2)  # the page asks in vain
    with running(settings, quick, port=port):
        browser.wait(lambda: len(browser.all(".tools a")) >= 2, "the results", 40)
        browser.wait(lambda: browser.run("return document.querySelector('video').readyState >= 2"), "the video")
        at(browser, 8000)
        assert browser.all(".third li")
        browser.show("about:blank")
    assert [e for e in browser.errors() if not any(word in e for word in NOT_CONNECTED)] == []


def test_a_job_is_watched_while_it_is_computed(serving: Serve, browser: Browser, clip: Path) -> None:
    held, release = paused()
    server = serving(predictors=held)
    job = server.upload(clip).json()
    open_watch(browser, server, job["id"])
    browser.wait(lambda: "computed up to 0:00" in browser.find(".badge").text, "what is computed")
    release.set()
    browser.wait(lambda: browser.run("return [...document.querySelectorAll('.tools a')].length >= 2"), "results", 40)
    at(browser, 8000)
    assert browser.all(".third li")


@pytest.fixture
def live(serving: Serve, clip: Path, quick: PredictorFactory) -> Running:
    how = {"sessions": lambda address: LiveSession(open_source(address, speed=2), quick.new())}
    return serving(streams={"pitch": str(clip)}, how=how)


def test_live(live: Running, browser: Browser) -> None:
    browser.show(live.url)
    browser.wait(lambda: browser.all("[data-testid=streams] a"), "the streams")
    browser.find("[data-testid=streams] a").click()
    browser.wait(lambda: browser.all(".badge.live"), "live")
    browser.wait(lambda: browser.run("return document.querySelector('.preview').naturalWidth > 0"), "a picture")
    browser.wait(lambda: browser.all(".third li"), "an anticipation")
    first = browser.find(".time").text
    browser.wait(lambda: browser.find(".time").text != first, "the clock")
    browser.size(PHONE, 844)
    assert browser.overflow() <= 0
    browser.wait(lambda: "ended" in browser.find(".badge").text, "the end", 20)
    assert live.service.streams["pitch"].started == 1


def hide(browser: Browser, hidden: bool) -> None:
    """As when another tab is looked at."""
    browser.run(
        """Object.defineProperty(document, "hidden", {value: arguments[0], configurable: true});
        document.dispatchEvent(new Event("visibilitychange"))""",
        hidden,
    )


def test_a_hidden_tab_lets_go_of_its_connection(
    serving: Serve, clip: Path, quick: PredictorFactory, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six tabs would take all connections that a browser allows itself. When it is looked at again it goes on; if
    the stream has begun anew meanwhile, so does the axis."""
    monkeypatch.setattr(streams, "LINGER_S", 1.0)
    how = {"sessions": lambda address: LiveSession(open_source(address, speed=2), quick.new())}
    server = serving(streams={"pitch": str(clip)}, how=how)
    stream = server.service.streams["pitch"]
    browser.show(f"{server.url}/#/stream/pitch")
    browser.wait(lambda: browser.all(".third li"), "an anticipation")
    hide(browser, True)
    browser.wait(lambda: stream.viewers == 0, "the connection to go")
    hide(browser, False)
    browser.wait(lambda: stream.viewers == 1, "the connection")
    assert stream.started == 1
    hide(browser, True)
    browser.wait(lambda: stream.state == "idle", "the stream's end")
    hide(browser, False)
    browser.wait(lambda: stream.started == 2, "the stream again")
    browser.wait(lambda: browser.find(".time").text in ("0:00", "0:01", "0:02", "0:03"), "its clock")
    assert not browser.all(".third li")


def test_a_stream_that_is_not_there(serving: Serve, browser: Browser) -> None:
    """Nothing that can be pressed in vain, no empty card, and why it is so."""
    server = serving(streams={"pitch": "/nowhere/pitch.mp4"})
    browser.show(f"{server.url}/#/stream/pitch")
    browser.wait(lambda: [b.text for b in browser.all(".badge")] == ["error"], "the error")
    assert "pitch" in browser.find(".note").text
    assert "nowhere" not in browser.text()
    assert not browser.find(".play").is_enabled()
    assert all(card.text for card in browser.all("aside .card"))
    browser.find("body").send_keys(" ")
    assert browser.find(".play").text == "▶"


def test_a_stream_that_fills_says_so(serving: Serve, clip: Path, browser: Browser) -> None:
    """Until an anticipation is made nothing is called live."""
    held, release = paused(100)
    server = serving(streams={"pitch": str(clip)}, how={"sessions": lambda a: LiveSession(open_source(a), held.new())})
    browser.show(f"{server.url}/#/stream/pitch")
    browser.wait(lambda: browser.run("return document.querySelector('.preview')?.naturalWidth > 0"), "a picture")
    time.sleep(1)
    assert not browser.all(".badge.live")
    assert browser.find(".note").text
    assert all(card.text for card in browser.all("aside .card"))
    release.set()
    browser.wait(lambda: browser.all(".badge.live"), "live")
    assert not browser.find(".note").is_displayed()


def test_a_job_that_is_not_there(serving: Serve, browser: Browser) -> None:
    server = serving()
    browser.show(f"{server.url}/#/job/{'0' * 16}")
    browser.wait(lambda: "there is no such job" in browser.text(), "why")
    assert browser.text().count("there is no such job") == 1
    assert all("404" in error for error in browser.errors())
    browser.find(".lost a").click()
    browser.wait(lambda: browser.all(".home"), "all videos")


def test_home_asks_no_more_when_it_is_left(serving: Serve, browser: Browser, clip: Path) -> None:
    """Even if it is left while it waits for an answer."""
    server = serving()
    job = server.upload(clip).json()
    server.until(job["id"], "done")
    browser.show(server.url)
    browser.wait(lambda: browser.all("[data-state=done]"), "the job")
    browser.run(
        """const right = window.fetch; window.asked = 0; window.answered = 0;
        window.fetch = async (path, ...how) => {
            if (path !== "/api/jobs") return right(path, ...how);
            window.asked += 1;
            await new Promise((done) => setTimeout(done, 600));
            window.answered += 1;
            return right(path, ...how);
        };"""
    )
    browser.wait(lambda: browser.run("return window.asked") == 1, "the question")
    browser.run("location.hash = arguments[0]", f"#/job/{job['id']}")
    browser.wait(lambda: browser.run("return window.answered") == 1, "the answer")
    time.sleep(2)
    assert browser.run("return window.asked") == 1


def test_figures_on_the_axis_stand_on_nothing(serving: Serve, browser: Browser) -> None:
    """Three drops close together in one lane: no figure over a drop or another figure, and the surest has its own."""
    browser.show(serving().url)
    browser.wait(lambda: browser.all("[data-testid=jobs]"), "the page")
    drops, texts = browser.driver.execute_async_script(
        """const done = arguments[0]; import("/static/axis.js").then(({Axis}) => {
        const canvas = document.createElement("canvas");
        canvas.style.cssText = "display: block; width: 900px; height: 280px";
        document.body.append(canvas);
        const axis = new Axis(canvas, ["a", "b"], 5000), drops = [], texts = [];
        const [arc, fill] = [axis.pen.arc, axis.pen.fillText];
        axis.pen.arc = function (x, y, r, ...rest) { drops.push([x - r, x + r]); arc.call(this, x, y, r, ...rest); };
        axis.pen.fillText = function (text, x, ...rest) {
            if (text.endsWith("%")) texts.push([text, x, x + this.measureText(text).width]);
            fill.call(this, text, x, ...rest);
        };
        const at = (position_ms, confidence) => ({label: "A", position_ms, confidence});
        const made = {at_ms: 9000, predictions: [at(12000, .74), at(12400, .3), at(12500, .2), at(14990, .9)]};
        axis.draw({now: 10000, timeline: {index: () => 0, anticipations: [made]},
            judged: {events: null, seen: new Map(), verdict: () => "open"}, shown: new Set(["A"]),
            index: new Map([["A", 0], ["B", 1]]),
            colours: {ground: "red", ink: "red", quiet: "red", line: "red", accent: "red", actions: ["red", "red"]}});
        done([drops, texts]); });"""
    )
    assert len(drops) == 4
    assert {"74 %", "90 %"} <= {text for text, _, _ in texts}
    spans = drops + [[left, right] for _, left, right in texts]
    for i, (_, left, right) in enumerate(texts):
        for j, (from_, to) in enumerate(spans):
            if j != len(drops) + i:
                assert right <= from_ or left >= to, (texts, drops)


def test_phone_and_themes(serving: Serve, browser: Browser, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / f"{'a long name ' * 9}.mp4").write_bytes(clip.read_bytes())
    server = serving(videos=tmp_path / "videos", streams={"pitch": str(clip)})
    job = server.upload(clip, "x" * 100).json()
    server.until(job["id"], "done")
    grounds = {}
    for theme in ("light", "dark"):
        for path in ("/", f"/#/job/{job['id']}", "/docs", "/login"):
            browser.show("about:blank")
            browser.show(server.url + path, width=PHONE, height=844, theme=theme)
            browser.wait(lambda: browser.run("return document.readyState === 'complete'"), "the page")
            time.sleep(0.3)
            assert browser.overflow() <= 0, (theme, path)
            grounds[theme] = browser.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert grounds["light"] != grounds["dark"]


def test_login(serving: Serve, browser: Browser) -> None:
    server = serving(token="the right token, long enough")
    browser.show(server.url)
    browser.wait(lambda: browser.all("#token"), "the login page")
    browser.find("#token").send_keys("wrong")
    browser.find("button.first").click()
    browser.wait(lambda: "wrong token" in browser.text(), "the refusal")
    assert all("401" in error for error in browser.errors())
    browser.find("#token").clear()
    browser.find("#token").send_keys("the right token, long enough")
    browser.find("button.first").click()
    browser.wait(lambda: browser.all(".home"), "the page")
    assert "right token" not in browser.run("return document.cookie + location.href")
    browser.find("#logout").click()
    browser.wait(lambda: browser.all("#token"), "the login page")


def test_login_by_the_printed_address(serving: Serve, browser: Browser) -> None:
    server = serving(token="the_right_token-long_enough")
    browser.show(f"{server.url}/login#the_right_token-long_enough")
    browser.wait(lambda: browser.all(".home"), "the page")
    assert "right" not in browser.run("return document.cookie + location.href")
    browser.driver.back()
    assert "right" not in browser.run("return location.href")


def test_the_interface_is_described(serving: Serve, browser: Browser) -> None:
    browser.show(serving().url + "/docs")
    browser.wait(lambda: "/api/jobs/{job_id}/timeline.csv" in browser.text(), "the description")
    assert "JobRecord" in browser.text()


def test_judging_by_hand(serving: Serve, browser: Browser) -> None:
    """Two predictions of one action: one is of it, the other of nothing; one made too late is of nothing at all."""
    made = [
        {"at_ms": 5000, "predictions": [
            {"label": "PASS", "position_ms": 6000, "confidence": 0.4},
            {"label": "PASS", "position_ms": 6400, "confidence": 0.6},
            {"label": "SHOT", "position_ms": 6500, "confidence": 0.5},
        ]},
        {"at_ms": 7000, "predictions": [{"label": "PASS", "position_ms": 7100, "confidence": 0.9}]},
    ]  # fmt: skip
    events = [{"label": "PASS", "position_ms": 6300}, {"label": "SHOT", "position_ms": 9000}]
    browser.show(serving().url)
    browser.wait(lambda: browser.all("[data-testid=jobs]"), "the page")
    found = browser.driver.execute_async_script(
        """const [made, events, done] = arguments; import("/static/judge.js").then(({Judged}) => {
        const judged = new Judged(made, events, 1000), all = new Set(["PASS", "SHOT"]);
        const words = made.flatMap((m) => m.predictions).map((p) => judged.verdict(p, 9500));
        done([words, judged.verdict(made[0].predictions[1], 6299), judged.score(6300, all), judged.score(9500, all),
              judged.score(9500, new Set(["SHOT"]))]); });""",
        made,
        events,
    )
    words, early, first, last, shots = found
    assert words == ["miss", "hit", "miss", "miss"]
    assert early == "open"
    assert (first["hits"], first["misses"], first["seen"], first["events"], first["lead"]) == (1, 0, 1, 1, 1300)
    assert (last["hits"], last["misses"], last["seen"], last["events"]) == (1, 3, 1, 2)
    assert last["confidence"] == pytest.approx(2.4)
    assert (shots["hits"], shots["misses"], shots["seen"], shots["events"]) == (0, 1, 0, 1)

"""Streams added, changed and removed while the server runs; alerts and clips of them; metrics and roles."""

import hashlib
import hmac
import json
import logging
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import av
import httpx
import pytest
from local_server import LocalServer
from rtsp_server import RtspServer
from stream_server import DrippingServer, until

from ballcast.core.errors import InputError
from ballcast.core.events import Forecast, Prediction
from ballcast.live.status import LiveForecast
from ballcast_server.networks import NetworkPolicy
from ballcast_server.predictors import make_predictor_factory
from ballcast_server.settings import AlertTargets
from ballcast_server.streams import alerts as alerting
from ballcast_server.streams.alerts import Alert, Alerts, sign
from ballcast_server.streams.clips import ClipStore
from ballcast_server.streams.config import StreamConfig
from ballcast_server.streams.ring import PacketRing
from ballcast_server.web import monitoring
from tests.live.test_session import tiny
from tests.server.conftest import LOOPBACK, Running, Serve
from tests.video.conftest import make_video


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """20 s of a transport stream with a key frame a second."""
    return make_video(tmp_path / "long.ts", range(500), size=(32, 64), codec_options={"bf": "0", "g": "25"})


def dripping(path: Path) -> DrippingServer:
    """The stream at about its own pace: all at once would be a recording that ends."""
    whole = path.read_bytes()
    step = 188 * max(1, len(whole) // 188 // 100)
    return DrippingServer([whole[i : i + step] for i in range(0, len(whole), step)], every_s=0.2)


def details(client: httpx.Client, name: str) -> dict[str, Any]:
    return next(s for s in client.get("/api/streams?details=true").json() if s["name"] == name)


def test_a_stream_is_added_changed_removed_and_kept_over_a_restart(serving: Serve, stream: Path) -> None:
    with dripping(stream) as server:
        first = serving()
        assert first.client.get("/api/streams").json() == []
        added = first.client.put("/api/streams/pitch", json={"address": server.address})
        assert added.status_code == 200, added.text
        assert (added.json()["name"], added.json()["always"], "address" in added.json()) == ("pitch", True, False)
        assert until(lambda: details(first.client, "pitch")["forecasts"] > 0, 30), details(first.client, "pitch")
        assert details(first.client, "pitch")["viewers"] == 0  # followed without any
        changed = {"address": server.address, "always": False, "alerts": {"SHOT": 0.5}, "clips": True}
        assert first.client.put("/api/streams/pitch", json=changed).json()["alerts"] == {"SHOT": 0.5}
        assert details(first.client, "pitch")["state"] == "idle"
        first.client.put("/api/streams/other", json={"address": server.address})
        first.server.end()
        first.gone()
        again = serving(streams={"fixed": str(stream)})
        assert [s["name"] for s in again.client.get("/api/streams").json()] == ["fixed", "pitch", "other"]
        assert details(again.client, "pitch")["clips"] is True
        assert until(lambda: details(again.client, "other")["state"] in ("filling", "running"), 20)
        assert again.client.delete("/api/streams/other").status_code == 204
        assert [s["name"] for s in again.client.get("/api/streams").json()] == ["fixed", "pitch"]
        assert again.client.get("/api/streams/other/clips").status_code == 404
        for method in ("put", "delete"):
            given = {"json": {"address": server.address}} if method == "put" else {}
            refused = again.client.request(method, "/api/streams/fixed", **given)  # type: ignore[arg-type]
            assert (refused.status_code, "given with --stream" in refused.json()["error"]) == (409, True)
    stored = json.loads((again.service.settings.data / "streams.json").read_text())
    assert [row["name"] for row in stored] == ["pitch"]
    assert (again.service.settings.data / "streams.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"address": "/etc/passwd"}, "give the address of a stream"),
        ({"address": "file:///etc/passwd"}, "give the address of a stream"),
        ({"address": "-"}, "give the address of a stream"),
        ({"address": "file:///srv/a.m3u8"}, "give the address of a stream"),
        ({"address": "concat:/srv/a.m3u8"}, "give the address of a stream"),
        ({"address": "v4l2://dev/video0"}, "give the address of a stream"),
        ({"address": "gopher://x/1"}, "address begins with one of"),
        ({"address": "gopher://x/a.m3u8"}, "address begins with one of"),
        ({"address": "ftp://x/a.m3u8"}, "address begins with one of"),
        ({"address": "unix:///srv/a.m3u8"}, "address begins with one of"),
        ({"address": "crypto+file:///srv/a.m3u8"}, "address begins with one of"),
        ({"address": "http://a b/1"}, "neither a name in ASCII nor an IP address"),
        ({"address": "rtsp://x/1", "alerts": {"GOAL": 0.5}}, "'GOAL': is not an action"),
        ({"address": "rtsp://x/1", "alerts": {"SHOT": 1.5}}, "a probability over 0 and up to 1"),
        ({"address": "rtsp://x/1", "clips": True}, "clips are kept of alerts"),
        ({"always": True}, "address"),
    ],
)
def test_what_is_no_stream_is_refused(serving: Serve, body: dict, words: str) -> None:
    refused = serving().client.put("/api/streams/x", json=body)
    assert refused.status_code == 422
    assert words in refused.json()["error"]


@pytest.mark.parametrize(
    "address",
    [
        "rtsp://127.0.0.1:1/1",
        "rtsp://user:secret@[::1]/1",
        "http://[::ffff:127.0.0.1]/1",
        "http://2130706433/1",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.1.2.3/a.m3u8",
        "rtmp://[fe80::1]/1",
        "tcp://0.0.0.0:1",
        "tcp://:1",
        "tcp://239.0.0.1:1",
        "udp://127.0.0.1:1",
    ],
)
def test_added_streams_lead_to_public_addresses(serving: Serve, address: str) -> None:
    running = serving(networks=NetworkPolicy(), streams={"fixed": "rtsp://127.0.0.1:1/1"})
    refused = running.client.put("/api/streams/x", json={"address": address})
    assert refused.status_code == 422
    assert "not a public address" in refused.json()["error"]
    assert [s["name"] for s in running.client.get("/api/streams").json()] == ["fixed"]  # those are the operator's


def test_a_stream_is_checked_again_when_it_is_opened(serving: Serve, stream: Path) -> None:
    """Its host may lead elsewhere by now, or the operator allows less than before."""
    with dripping(stream) as server:
        running = serving()
        running.client.put("/api/streams/x", json={"address": server.address, "always": False})
        running.server.end()
        running.gone()
        again = serving(networks=NetworkPolicy())
        record = next(r for r in watched(again, "x") if r.get("state") == "reconnecting")
    assert "its host is not a public address" in record["message"]
    assert "127.0.0.1" not in json.dumps(record)


def watched(running: Running, name: str) -> Iterator[dict[str, Any]]:
    with running.client.stream("GET", f"/api/streams/{name}/events") as events:
        for line in events.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def test_one_that_cannot_be_reached_says_so_without_its_password(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ballcast_server.streams.stream.FIRST_WAIT_S", 0.2)
    running = serving()
    running.client.put("/api/streams/x", json={"address": "rtsp://user:secret@127.0.0.1:1/1"})
    assert until(lambda: details(running.client, "x")["last_error"] or details(running.client, "x")["reconnects"], 30)
    assert "secret" not in json.dumps(running.client.get("/api/streams?details=true").json())
    assert "secret" not in running.client.get("/metrics").text
    assert until(lambda: running.service.streams["x"].started >= 1)


def test_all_streams_share_one_scheduler(serving: Serve, stream: Path) -> None:
    """A real network, an RTSP source and one over HTTP beside each other."""
    predictors = make_predictor_factory(lambda: tiny().runtime, every_ms=1000, any_video=True)
    running = serving(predictors=predictors)
    with RtspServer(stream, close=False, every_s=0.03) as rtsp, dripping(stream) as dripped:
        running.client.put("/api/streams/a", json={"address": rtsp.address})
        running.client.put("/api/streams/b", json={"address": dripped.address})
        assert until(lambda: all(details(running.client, n)["forecasts"] for n in "ab"), 40), running.client.get(
            "/api/streams?details=true"
        ).json()
        scheduler = running.service.scheduler.running
        assert scheduler is not None
        assert scheduler.load.running == 2
        assert until(lambda: scheduler.load.steps > 50)
        samples = parsed(running.client.get("/metrics").text)
    assert samples["ballcast_scheduler_streams", ()] == 2
    assert samples["ballcast_scheduler_steps_total", ()] > 50
    assert samples["ballcast_stream_forecasts_total", (("stream", "a"),)] > 0
    assert samples["ballcast_stream_delay_seconds", (("stream", "b"),)] > 0


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_metrics_are_what_prometheus_reads_and_health_needs_no_token(serving: Serve) -> None:
    running = serving(token="a token of the operator", streams={"pitch": "/nowhere.mp4"})
    assert running.client.get("/healthz").json()["status"] == "ok"
    assert running.client.get("/readyz").status_code == 200
    assert running.client.get("/metrics", follow_redirects=False).status_code == 303
    answer = running.client.get("/metrics", headers={"Authorization": "Bearer a token of the operator"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = parsed(answer.text)
    assert samples["ballcast_streams", ()] == 1
    assert samples["ballcast_stream_state", (("state", "idle"), ("stream", "pitch"))] == 1
    assert samples["ballcast_stream_frames_lost_total", (("stream", "pitch"),)] == 0
    running.service.ready = False
    assert running.client.get("/readyz").status_code == 503
    board = (Path(__file__).parents[3] / "docs" / "grafana.json").read_text()
    targets = [target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]]
    asked = {name for text in targets for name in re.findall(r"ballcast_\w+", text)}
    of_targets = {"ballcast_alerts_delivered_total", "ballcast_alerts_failed_total", "ballcast_alerts_waiting"}
    assert len(asked) > 8
    assert asked <= {name for name, _ in samples} | of_targets | {"ballcast_gpu_memory_bytes"}


def test_logs_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers, logging.getLogger("ballcast").level
    try:
        monitoring.log_as("json")
        logging.getLogger("ballcast.web").info(
            "stream %s: running", "pitch", extra={"stream": "pitch", "dropped": 3, "_ray_timestamp_ns": 1}
        )
        line = json.loads(capsys.readouterr().err.splitlines()[-1])
    finally:
        root.handlers = before
        logging.getLogger("ballcast").setLevel(level)
    assert line | {"time": ""} == {
        "time": "", "level": "info", "logger": "ballcast.web", "message": "stream pitch: running",
        "stream": "pitch", "dropped": 3,
    }  # fmt: skip


# -- alerts ------------------------------------------------------------------------------------------------------------


class Receiver(LocalServer):
    """A webhook's: refuses the first `refusing` messages, keeps the others."""

    def __init__(self, refusing: int = 0) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.refusing = refusing
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refused = outer.refusing > 0
                outer.refusing -= refused
                if not refused:
                    outer.got.append((dict(self.headers), body))
                self.send_response(500 if refused else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler)
        self.address = f"http://127.0.0.1:{self.port}/hook"


def made(label: str = "SHOT", confidence: float = 0.8, at_ms: int = 5000) -> LiveForecast:
    return LiveForecast(Forecast(at_ms, (Prediction(label, at_ms + 1000, confidence),)), 0, 1.0, 0, 1000)


def test_a_webhook_gets_each_alert_once_signed_after_it_was_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "FIRST_WAIT_S", 0.05)
    with Receiver(refusing=3) as receiver:
        alerts = Alerts(AlertTargets(receiver.address, "secret", cooldown_s=60), LOOPBACK)
        began = time.monotonic()
        assert len(alerts.consider("pitch", made(), {"SHOT": 0.5})) == 1
        assert alerts.consider("pitch", made(), {"SHOT": 0.5}) == []  # too soon
        assert alerts.consider("pitch", made("PASS", 0.4), {"SHOT": 0.5, "PASS": 0.5}) == []  # too unlikely
        assert len(alerts.consider("other", made(), {"SHOT": 0.5})) == 1  # another stream
        assert time.monotonic() - began < 0.5  # nobody waits for the receiver
        assert until(lambda: len(receiver.got) == 2)
        delivery = alerts.deliveries[0]
        assert until(lambda: (delivery.delivered, delivery.failed, delivery.waiting) == (2, 3, 0))
        alerts.close()
    bodies = [json.loads(body) for _, body in receiver.got]
    assert [(b["stream"], b["action"], b["probability"], b["position_ms"]) for b in bodies] == [
        ("pitch", "SHOT", 0.8, 6000),
        ("other", "SHOT", 0.8, 6000),
    ]
    assert len({b["id"] for b in bodies}) == 2
    for headers, body in receiver.got:
        stamp = headers["X-Ballcast-Timestamp"]
        expected = hmac.new(b"secret", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        assert headers["X-Ballcast-Signature"] == f"sha256={expected}" == f"sha256={sign('secret', stamp, body)}"
        assert abs(int(stamp) - time.time()) < 60


@pytest.mark.parametrize("resolved", ["there", "elsewhere"])
def test_a_webhook_in_a_private_network_gets_nothing(monkeypatch: pytest.MonkeyPatch, resolved: str) -> None:
    """Neither by its address, nor where its name leads there only once it was looked up."""
    if resolved == "elsewhere":
        monkeypatch.setattr(NetworkPolicy, "check_url", lambda *_: None)
    with Receiver() as receiver:
        alerts = Alerts(AlertTargets(receiver.address, "secret", cooldown_s=60))
        alerts.consider("pitch", made(), {"SHOT": 0.5})
        assert until(lambda: "not a public address" in alerts.deliveries[0].error)
        alerts.close()
    assert receiver.got == []


def test_what_cannot_be_delivered_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting, "WAITING", 5)
    alerts = Alerts(AlertTargets("http://127.0.0.1:1/hook", cooldown_s=0), LOOPBACK)
    for n in range(12):
        alerts.consider("pitch", made(at_ms=5000 + n), {"SHOT": 0.5})
    delivery = alerts.deliveries[0]
    assert (alerts.raised, delivery.waiting, delivery.dropped) == (12, 5, 7)
    assert until(lambda: "webhook failed" in delivery.error)
    alerts.close()


@pytest.mark.parametrize("targets", [{"webhook": "ftp://x"}, {"mqtt": "http://x"}, {"mqtt": "mqtt:///topic"}])
def test_targets_that_are_none(targets: dict[str, str]) -> None:
    with pytest.raises(InputError):
        AlertTargets(**targets)


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_mqtt_through_a_real_broker(tmp_path: Path) -> None:
    client_module = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    from paho.mqtt.enums import CallbackAPIVersion

    got: list[tuple[str, dict]] = []
    listening = threading.Event()
    with mosquitto(tmp_path) as port:
        listener = client_module.Client(CallbackAPIVersion.VERSION2)
        listener.on_message = lambda _c, _d, message: got.append((message.topic, json.loads(message.payload)))
        listener.on_subscribe = lambda *_: listening.set()
        listener.on_connect = lambda client, *_: client.subscribe("games/#", qos=1)
        listener.connect_async("127.0.0.1", port)
        listener.loop_start()
        assert listening.wait(20)
        alerts = Alerts(AlertTargets(mqtt=f"mqtt://127.0.0.1:{port}/games"))
        alerts.consider("pitch", made("HIGH PASS"), {"HIGH PASS": 0.5})
        assert until(lambda: got, 20)
        alerts.close()
        listener.disconnect()
        listener.loop_stop()
    assert got[0][0] == "games/pitch/high-pass"
    assert (got[0][1]["action"], got[0][1]["stream"]) == ("HIGH PASS", "pitch")


# -- clips -------------------------------------------------------------------------------------------------------------


def ring_of(path: Path, seconds: float = 60) -> PacketRing:
    ring = PacketRing(seconds)
    with av.open(str(path)) as given:
        ring.begin(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            ring.add(packet)
    return ring


@pytest.mark.parametrize("suffix", [".ts", ".mp4"])
def test_a_clip_is_cut_without_encoding(tmp_path: Path, suffix: str) -> None:
    path = make_video(tmp_path / f"a{suffix}", range(500), size=(32, 64), codec_options={"g": "25", "bf": "0"})
    with av.open(str(path)) as given:
        pictures = [frame.to_ndarray(format="gray") for frame in given.decode(video=0)]
        origin = float(given.streams.video[0].start_time * given.streams.video[0].time_base)
    ring = ring_of(path)
    first = max(i for i, packet in enumerate(ring._packets) if packet.key and i <= 7.3 * 25)
    assert ring.write(tmp_path / "clip.mp4", origin + 7.3, origin + 9.0)
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        got = [frame.to_ndarray(format="gray") for frame in clip.decode(video=0)]
    assert first > 150
    assert len(got) == 9 * 25 + 1 - first  # from the key frame before on
    assert all((a == b).all() for a, b in zip(got, pictures[first:], strict=False))
    assert not ring.write(tmp_path / "none.mp4", origin - 9, origin - 8)


def test_the_ring_keeps_only_the_last_seconds(stream: Path) -> None:
    ring = ring_of(stream, 3)
    packets = list(ring._packets)
    assert packets[0].key
    assert 75 <= len(packets) <= 101


def test_alerts_leave_clips_which_are_removed_by_age_and_size(
    serving: Serve, stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ballcast_server.streams.store.ClipStore",
        lambda folder, **how: ClipStore(folder, before_s=2, after_s=1, **how),
    )
    with dripping(stream) as server, Receiver() as receiver:
        running = serving(alerts=AlertTargets(receiver.address, cooldown_s=2))
        every = dict.fromkeys(running.client.get("/api/about").json()["actions"], 0.01)
        running.client.put("/api/streams/pitch", json={"address": server.address, "alerts": every, "clips": True})
        assert until(lambda: len(running.client.get("/api/streams/pitch/clips").json()) >= 2, 40)
        assert receiver.got
        clip = running.client.get("/api/streams/pitch/clips").json()[0]
        whole = running.client.get(f"/api/streams/pitch/clips/{clip['name']}")
        assert whole.headers["content-type"] == "video/mp4"
        path = running.service.settings.data / "fetched.mp4"
        path.write_bytes(whole.content)
        with av.open(str(path)) as given:
            assert 60 <= sum(1 for _ in given.decode(video=0)) <= 160
        assert running.client.get("/api/streams/pitch/clips/..%2F..%2Fstreams.json").status_code == 404
        clips = running.service.streams.clips
        assert parsed(running.client.get("/metrics").text)["ballcast_clips_written_total", ()] >= 2
        clips._keep_bytes = clip["bytes"] + 1
        clips.prune()
        assert sum(c.stat().st_size for c in clips.clips("pitch")) <= clip["bytes"] + 1
        clips._keep_s = 0
        clips.prune()
        assert clips.clips("pitch") == []
        assert clips.removed >= 2


def test_a_full_disk_costs_a_clip_and_nothing_else(tmp_path: Path, stream: Path) -> None:
    (tmp_path / "clips").write_text("not a folder")  # nothing can be written there
    store = ClipStore(tmp_path / "clips", before_s=1, after_s=1)
    alert = Alert("0" * 16, "pitch", "SHOT", 0.9, 5000, 6000, 0)
    store.request(alert, ring_of(stream), 6.0)
    assert until(lambda: store.failed == 1)
    assert store.error
    (tmp_path / "clips").unlink()
    store.request(alert, ring_of(stream), 6.0)
    assert until(lambda: store.written == 1)
    store.close()


# -- roles -------------------------------------------------------------------------------------------------------------


def test_viewers_look_administrators_change_and_both_are_revoked(serving: Serve) -> None:
    running = serving(token="a token of the operator")
    tokens, data = running.service.tokens, running.service.settings.data
    given = {name: tokens.add(name, role) for name, role in {"desk": "viewer", "chief": "admin"}.items()}
    assert given["desk"] not in (data / "tokens.json").read_text()

    def ask(name: str, method: str, path: str, **more: Any) -> int:
        headers = {"Authorization": f"Bearer {given[name]}"}
        return running.client.request(method, path, headers=headers, **more).status_code

    assert ask("desk", "GET", "/api/streams") == ask("chief", "GET", "/api/streams") == 200
    body = {"json": {"address": "rtsp://127.0.0.1:1/1", "always": False}}
    assert ask("desk", "PUT", "/api/streams/x", **body) == 403
    assert ask("desk", "POST", "/api/uploads", content=b"x") == 403
    assert ask("chief", "PUT", "/api/streams/x", **body) == 200
    assert ask("desk", "DELETE", "/api/streams/x") == 403
    with httpx.Client(base_url=running.url) as browser:
        assert browser.post("/api/login", json={"token": given["desk"]}).status_code == 204
        assert browser.get("/api/streams").status_code == 200
        assert browser.delete("/api/streams/x").status_code == 403
        tokens.revoke("desk")  # as `ballcast token revoke` does in another process
        assert browser.get("/api/streams").status_code == 401
    assert ask("desk", "GET", "/api/streams") == 401
    assert ask("chief", "DELETE", "/api/streams/x") == 204
    for bad in (("desk two", "viewer"), ("desk", "owner"), ("chief", "viewer")):
        with pytest.raises(InputError):
            tokens.add(*bad)
    with pytest.raises(InputError, match="no token of this name"):
        tokens.revoke("desk")


def test_a_stored_stream_is_checked() -> None:
    with pytest.raises(InputError, match="name has letters"):
        StreamConfig(name="a/b", address="rtsp://x")

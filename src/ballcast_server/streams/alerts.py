"""Alerts: when an action's probability passes its threshold, a webhook and an MQTT message, never on a stream's thread.

    alerts = Alerts(AlertTargets(webhook="https://desk.example.org/hook", secret="…", mqtt="mqtt://broker/ballcast"))
    alerts.consider("pitch", forecast, {"SHOT": 0.5})

A forecast costs a stream a few comparisons; everything else happens on a thread for each target. A message that cannot
be delivered is tried again, after 1 s, 2 s, 4 s … 60 s, in the order of the messages, for `KEPT_S`. At most `WAITING`
messages wait for a target; the oldest is dropped, and counted, for a new one.
"""

import hashlib
import hmac
import json
import secrets
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.error import URLError
from urllib.parse import urlsplit

from ballcast.core.errors import InputError, MissingExtra
from ballcast.live.status import LiveForecast, wall_ms
from ballcast_server.networks import NetworkPolicy, checked_opener
from ballcast_server.settings import AlertTargets

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0  # before a message is sent again
KEPT_S = 3600.0  # how long a message is tried
WAITING = 1000  # messages of one target
TIMEOUT_S = 10.0  # of one delivery
PUBLIC = NetworkPolicy()


@dataclass(frozen=True)
class Alert:
    """One action that is expected.

    Args:
        id: random; the same in every attempt to deliver it.
        stream: name of the stream.
        action: its label.
        probability: in [0, 1].
        at_ms: stream time of the forecast.
        position_ms: stream time at which the action is expected.
        wall_ms: Unix time of the alert.
    """

    id: str
    stream: str
    action: str
    probability: float
    at_ms: int
    position_ms: int
    wall_ms: int

    def to_json(self) -> dict[str, Any]:
        """The message as sent."""
        return {
            "type": "alert",
            "id": self.id,
            "stream": self.stream,
            "action": self.action,
            "probability": round(self.probability, 4),
            "at_ms": self.at_ms,
            "position_ms": self.position_ms,
            "wall_ms": self.wall_ms,
        }


class Sender(Protocol):
    """Delivers messages to one target."""

    name: str

    def send(self, alert: Alert) -> None:
        """Deliver a message, or raise OSError."""
        ...

    def close(self) -> None: ...


class Webhook:
    """Posts messages to an address.

    With a secret, `X-Ballcast-Signature` is "sha256=" and the HMAC of timestamp, "." and body in hexadecimal digits;
    `X-Ballcast-Timestamp` is the timestamp, seconds since 1970.
    """

    name = "webhook"

    def __init__(self, address: str, secret: str, networks: NetworkPolicy) -> None:
        self._address = address
        self._secret = secret
        self._networks = networks
        self._opener = checked_opener(networks, address, _NoRedirects)

    def send(self, alert: Alert) -> None:
        try:
            self._networks.check_url(self._address)
        except InputError as error:
            raise OSError(f"the webhook failed: {error}") from None
        body = json.dumps(alert.to_json()).encode()
        now = str(int(time.time()))
        headers = {"Content-Type": "application/json", "X-Ballcast-Timestamp": now, "X-Ballcast-Id": alert.id}
        if self._secret:
            headers["X-Ballcast-Signature"] = f"sha256={sign(self._secret, now, body)}"
        request = urllib.request.Request(self._address, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_S):
                pass
        except URLError as error:
            raise OSError(f"the webhook failed: {error.reason}") from None
        except ValueError as error:  # an answer that is no HTTP
            raise OSError(f"the webhook failed: {error}") from None

    def close(self) -> None:
        self._opener.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the signed message is for the address that was given."""

    def redirect_request(self, *_: Any) -> None:
        return None


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a message of a webhook."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


class Mqtt:
    """Publishes messages to a broker with quality of service 1: the broker confirms each."""

    name = "mqtt"

    def __init__(self, address: str) -> None:
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise MissingExtra("paho-mqtt", "alerts") from None
        parts = urlsplit(address)
        self._topic = parts.path.strip("/") or "ballcast"
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"ballcast-{secrets.token_hex(4)}")
        if parts.username:
            self._client.username_pw_set(parts.username, parts.password)
        if parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.connect_async(parts.hostname or "", parts.port or (8883 if parts.scheme == "mqtts" else 1883))
        self._client.loop_start()

    def send(self, alert: Alert) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not self._client.is_connected():  # the client connects by itself, again and again
            if time.monotonic() > end:
                raise OSError("the MQTT broker cannot be reached")
            time.sleep(0.05)
        topic = f"{self._topic}/{alert.stream}/{alert.action.lower().replace(' ', '-')}"
        try:
            info = self._client.publish(topic, json.dumps(alert.to_json()), qos=1)
            info.wait_for_publish(TIMEOUT_S)
        except (RuntimeError, ValueError) as error:
            raise OSError(f"the MQTT broker refused the message: {error}") from None
        if not info.is_published():
            raise OSError("the MQTT broker did not confirm the message")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Delivery:
    """The messages of one target, in order, on a separate thread.

    Attributes:
        delivered, failed, dropped: messages that arrived, attempts that did not, messages that were given up.
        error: of the last attempt; "" if it succeeded.
    """

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.delivered = self.failed = self.dropped = 0
        self.error = ""
        self._waiting: deque[Alert] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"alerts-{sender.name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Messages that have not arrived yet."""
        return len(self._waiting)

    def put(self, alert: Alert) -> None:
        """Add a message; never waits."""
        with self._changed:
            if len(self._waiting) >= WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(alert)
            self._changed.notify()

    def close(self) -> None:
        """Stop; what has not arrived is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(2.0)  # an attempt that hangs ends with the process
        self.sender.close()

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    self.dropped += len(self._waiting)
                    return
                alert = self._waiting[0]
            if self._try(alert):
                wait_s = FIRST_WAIT_S
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closed, wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _try(self, alert: Alert) -> bool:
        """Deliver a message; whether it is done with."""
        try:
            self.sender.send(alert)
        except Exception as error:  # whatever a sender meets, the next messages still go out
            self.failed += 1
            self.error = str(error)
            if wall_ms() - alert.wall_ms < 1000 * KEPT_S:
                return False
            self.dropped += 1
        else:
            self.delivered += 1
            self.error = ""
        with self._changed:
            if self._waiting and self._waiting[0] is alert:  # or it was dropped meanwhile
                self._waiting.popleft()
        return True


class Alerts:
    """Turns forecasts into alerts, and delivers them.

    Args:
        targets: where they go.
        networks: which addresses the webhook may lead to.
    """

    def __init__(self, targets: AlertTargets, networks: NetworkPolicy = PUBLIC) -> None:
        self._cooldown_s = targets.cooldown_s
        senders: list[Sender] = [Webhook(targets.webhook, targets.secret, networks)] if targets.webhook else []
        senders += [Mqtt(targets.mqtt)] if targets.mqtt else []
        self.deliveries = [Delivery(sender) for sender in senders]
        self._last: dict[tuple[str, str], float] = {}
        self.raised = 0

    def consider(self, stream: str, made: LiveForecast, thresholds: Mapping[str, float]) -> list[Alert]:
        """Raise the alerts of a forecast.

        Args:
            stream: its name.
            made: the forecast.
            thresholds: least probability by action; actions without one raise none.

        Returns:
            The alerts, which are under way.
        """
        raised = []
        by_confidence = sorted(made.forecast.predictions, key=lambda p: -p.confidence)
        for p in by_confidence:
            now = time.monotonic()
            key = (stream, p.label)
            if p.label not in thresholds or p.confidence < thresholds[p.label]:
                continue
            if now - self._last.get(key, -1e9) < self._cooldown_s:
                continue
            self._last[key] = now
            at_ms = made.forecast.at_ms
            place = p.position_ms
            alert = Alert(secrets.token_hex(8), stream, p.label, p.confidence, at_ms, place, wall_ms())
            raised.append(alert)
            self.raised += 1
            for delivery in self.deliveries:
                delivery.put(alert)
        return raised

    def forget(self, stream: str) -> None:
        """Drop what is kept of a stream that is gone."""
        for key in [key for key in self._last if key[0] == stream]:
            del self._last[key]

    def close(self) -> None:
        """Stop delivering."""
        for delivery in self.deliveries:
            delivery.close()

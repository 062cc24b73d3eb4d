"""The streams of a server: those given with --stream, and those that administrators add, kept over a restart."""

import asyncio
import re
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.config import from_dict
from ballcast.core.errors import InputError
from ballcast.core.files import read_json, write_json
from ballcast.video.addresses import is_remote, is_stream
from ballcast_server.streams.alerts import Alerts
from ballcast_server.streams.clips import ClipStore
from ballcast_server.web.settings import RequestError, Settings
from ballcast_server.web.streams import OpenSession, Stream

FILE = "streams.json"
NAME = re.compile(r"[\w-]{1,40}")
MOST = 1000


@dataclass(frozen=True)
class StreamConfig:
    """How a stream is followed.

    Args:
        name: by which people know it.
        address: of the stream; may hold a password.
        always: follow it without viewers too.
        alerts: least probability of an alert by action.
        clips: keep the seconds around each alert.
        fixed: given on the command line, and not changed while the server runs.
    """

    name: str
    address: str
    always: bool = True
    alerts: dict[str, float] = field(default_factory=dict)
    clips: bool = False
    fixed: bool = False

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"{self.name!r}: a stream's name has letters, digits, - and _, at most 40")
        for action, threshold in self.alerts.items():
            if action not in ACTION_INDEX:
                raise InputError(f"{action!r}: is not an action; there are {', '.join(ACTION_INDEX)}")
            if not 0 < threshold <= 1:
                raise InputError(f"{action}: an alert's threshold is a probability over 0 and up to 1")
        if self.clips and not self.alerts:
            raise InputError("clips are kept of alerts; give alerts too")


def check_address(address: str) -> None:
    """Raise an InputError unless it is the address of a stream on a network: not a file or a device of the server."""
    if not is_stream(address) or not is_remote(address):
        raise InputError("give the address of a stream, such as rtsp://camera.local/1")


class StreamStore:
    """The streams, what they raise, and the file that keeps those that were added.

    Args:
        settings: of the server.
        open_: opens a session.
        loop: event loop of the viewers.
    """

    def __init__(self, settings: Settings, open_: OpenSession, loop: asyncio.AbstractEventLoop) -> None:
        self._path, self._open, self._loop, fixed = settings.data / FILE, open_, loop, settings.streams
        self._networks = settings.networks
        added = self._read()  # first: a file that cannot be read leaves no threads behind
        self.alerts = Alerts(settings.alerts, settings.networks)
        days, most = settings.clips_days, settings.clips_bytes
        self.clips = ClipStore(settings.data / "clips", keep_s=86400 * days, keep_bytes=most)
        self.streams: dict[str, Stream] = {}
        self._configs: dict[str, StreamConfig] = {}
        configs = {name: StreamConfig(name, address, always=False, fixed=True) for name, address in fixed.items()}
        for config in [*configs.values(), *(c for c in added if c.name not in configs)]:
            self._begin(config)

    def config(self, name: str) -> StreamConfig:
        """How a stream is followed; RequestError 404 if there is none of this name."""
        if name not in self._configs:
            raise RequestError(404, "there is no such stream")
        return self._configs[name]

    def put(self, config: StreamConfig) -> None:
        """Add a stream, or change the one of its name; it begins anew. On the event loop."""
        before = self._configs.get(config.name)
        if before is not None and before.fixed:
            raise RequestError(409, "the stream was given with --stream; change it there")
        if before is None and len(self._configs) >= MOST:
            raise RequestError(429, f"there are {MOST} streams; remove some")
        changed = self._configs | {config.name: config}
        self._write(changed)  # first: what is followed is what a restart follows
        self._end(config.name)
        self._begin(config)

    def remove(self, name: str) -> None:
        """Remove a stream; its clips stay until they are too old. On the event loop."""
        if self.config(name).fixed:
            raise RequestError(409, "the stream was given with --stream; leave it out there")
        self._write({key: config for key, config in self._configs.items() if key != name})
        self._end(name)

    def close(self) -> None:
        """End all streams, then alerts and clips."""
        for stream in self.streams.values():
            stream.close()
        self.alerts.close()
        self.clips.close()

    def _begin(self, config: StreamConfig) -> None:
        open_ = self._open if config.fixed else partial(self._open, check=self._networks.check_url)
        stream = Stream(config.name, config.address, open_, self._loop, always=config.always)
        if config.alerts:
            stream.watch_for(self.alerts, config.alerts, self.clips if config.clips else None)
        self.streams[config.name], self._configs[config.name] = stream, config
        if config.always:
            stream.keep()

    def _end(self, name: str) -> None:
        stream = self.streams.pop(name, None)
        self._configs.pop(name, None)
        if stream is not None:
            self.alerts.forget(name)
            stream.close_soon()

    def _read(self) -> list[StreamConfig]:
        if not self._path.exists():
            return []
        rows = read_json(self._path, "streams")
        if not isinstance(rows, list):
            raise InputError(f"{self._path}: is not a file of streams; delete it, and add them again")
        found = [replace(from_dict(StreamConfig, row, where=str(self._path)), fixed=False) for row in rows]
        for config in found:
            try:
                check_address(config.address)
            except InputError as error:
                raise InputError(f"{self._path}: {config.name}: {error}") from None
        return found

    def _write(self, configs: dict[str, StreamConfig]) -> None:
        rows: list[dict[str, Any]] = [asdict(replace(c, fixed=False)) for c in configs.values() if not c.fixed]
        write_json(self._path, rows, indent=1)
        self._path.chmod(0o600)  # addresses may hold passwords

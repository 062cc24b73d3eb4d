"""The streams of a server: those given with --stream, and those that administrators add, kept over a restart."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial

from ballcast.core.errors import InputError
from ballcast.core.files import write_json
from ballcast.video.addresses import is_remote, is_stream
from ballcast_server.rows import read_rows
from ballcast_server.settings import RequestError, Settings
from ballcast_server.streams.alerts import Alerts
from ballcast_server.streams.clips import ClipStore
from ballcast_server.streams.config import StreamConfig
from ballcast_server.streams.stream import OpenSession, Stream

FILE = "streams.json"
MOST = 1000


def check_address(address: str) -> None:
    """Raise an InputError unless it is the address of a stream on a network: not a file or a device of the server."""
    if not is_stream(address) or not is_remote(address):
        raise InputError("give the address of a stream, such as rtsp://camera.local/1")


class StreamStore(Mapping[str, Stream]):
    """The streams by name, what they raise, and the file that keeps those that were added.

    Args:
        settings: of the server.
        open_: opens a session.
        loop: event loop of the viewers.
    """

    def __init__(self, settings: Settings, open_: OpenSession, loop: asyncio.AbstractEventLoop) -> None:
        self._path = settings.data / FILE
        self._open = open_
        self._loop = loop
        self._networks = settings.networks
        fixed = settings.streams
        added = self._read()  # first: a file that cannot be read leaves no threads behind
        self.alerts = Alerts(settings.alerts, settings.networks)
        days, most = settings.clips_days, settings.clips_bytes
        self.clips = ClipStore(settings.data / "clips", keep_s=86400 * days, keep_bytes=most)
        self._streams: dict[str, Stream] = {}
        self._configs: dict[str, StreamConfig] = {}
        for name, address in fixed.items():
            self._begin(StreamConfig(name=name, address=address, always=False, fixed=True))
        for config in added:
            if config.name not in fixed:
                self._begin(config)

    def __getitem__(self, name: str) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._streams))

    def __len__(self) -> int:
        return len(self._streams)

    def config(self, name: str) -> StreamConfig:
        """How a stream is followed; RequestError 404 if there is none of this name."""
        if name not in self._configs:
            raise RequestError(404, "there is no such stream")
        return self._configs[name]

    def put(self, config: StreamConfig) -> None:
        """Add a stream, or change the one of its name; it starts again. On the event loop."""
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
        for stream in self._streams.values():
            stream.close()
        self.alerts.close()
        self.clips.close()

    def _begin(self, config: StreamConfig) -> None:
        open_ = self._open if config.fixed else partial(self._open, check=self._networks.check_url)
        stream = Stream(config.name, config.address, open_, self._loop, always=config.always)
        if config.alerts:
            stream.watch_for(self.alerts, config.alerts, self.clips if config.clips else None)
        self._streams[config.name] = stream
        self._configs[config.name] = config
        if config.always:
            stream.keep()

    def _end(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        self._configs.pop(name, None)
        if stream is not None:
            self.alerts.forget(name)
            stream.close_soon()

    def _read(self) -> list[StreamConfig]:
        if not self._path.exists():
            return []
        found = [row.model_copy(update={"fixed": False}) for row in read_rows(self._path, "streams", StreamConfig)]
        for config in found:
            try:
                check_address(config.address)
            except InputError as error:
                raise InputError(f"{self._path}: {config.name}: {error}") from None
        return found

    def _write(self, configs: dict[str, StreamConfig]) -> None:
        rows = [config.model_dump() for config in configs.values() if not config.fixed]
        write_json(self._path, rows, indent=1)
        self._path.chmod(0o600)  # addresses may hold passwords

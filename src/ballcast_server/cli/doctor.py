"""What `ballcast doctor` says of the server; found by the entry point `ballcast.checks`."""

from collections.abc import Iterator

from ballcast.inference.doctor import Finding
from ballcast_server.confined.sandbox import missing


def check_sandbox() -> Iterator[Finding]:
    """Whether uploads to `ballcast serve` are decoded in a sandbox."""
    lack = missing()
    yield Finding("sandbox", None if lack else True, lack or "no network, programs or other files for uploads")

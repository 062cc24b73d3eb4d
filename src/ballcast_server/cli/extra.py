"""Check that the extra `server` is installed; commands are listed, and explain themselves, without it."""

from importlib.util import find_spec

from ballcast.core.errors import MissingExtra

PACKAGES = ("fastapi", "prometheus_client", "python_multipart", "uvicorn")  # as they are imported


def require_server() -> None:
    """Raise a MissingExtra if a package of the extra is not installed."""
    for package in PACKAGES:
        if find_spec(package) is None:
            raise MissingExtra(package, "server")

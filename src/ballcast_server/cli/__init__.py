"""The commands of the server: `ballcast` finds them by the entry point `ballcast.commands`, and imports this."""

from ballcast_server.cli import serve, tokens  # noqa: F401

"""Checks of config values: an InputError that says what a value must be."""

from typing import Any

from ballcast.core.errors import InputError


def require(ok: bool, message: str) -> None:
    if not ok:
        raise InputError(message)


def within(config: Any, low: float, high: float, *names: str) -> None:
    """Each named value is between `low` and `high`; far beyond what is sensible, short of what stops the machine."""
    for name in names:
        require(low <= getattr(config, name) <= high, f"{name} must be between {low} and {high}")

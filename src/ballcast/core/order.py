"""The order people expect of numbered names."""

import re


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts clip_2 before clip_10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

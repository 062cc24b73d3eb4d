"""The colours of the project: one per action and a few for text and lines, on a dark and a light background.

The overlay, the report and the live page use them. The ten colours were found by a search so that people with red or
green blindness can tell any two apart and each contrasts with its background; the tests measure both. Ten are too many
to distinguish by colour only, so the name or initials of an action always stand beside its colour.
"""

from dataclasses import dataclass, fields

from ballcast.core.actions import ACTIONS

Colour = tuple[int, int, int]  # red, green, blue, 0–255


@dataclass(frozen=True)
class Theme:
    """Colours on one background, in CSS notation; `actions` in the order of ACTIONS."""

    ground: str  # background of the page
    panel: str  # background of a card
    line: str  # rules and axes
    ink: str  # text
    quiet: str  # secondary text
    accent: str  # highlight
    good: str  # a correct prediction
    bad: str  # a wrong prediction
    actions: tuple[str, ...]


DARK = Theme(
    ground="#0d131e",
    panel="#182131",
    line="#3a475e",
    ink="#f0f4fa",
    quiet="#9aa7bd",
    accent="#ffb454",
    good="#5fd3a2",
    bad="#ff8f86",
    actions=(
        "#697dec",  # pass
        "#6cf8ab",  # drive
        "#92a8ff",  # header
        "#2c93b7",  # high pass
        "#c0b04d",  # throw in
        "#f4de34",  # cross
        "#f94e83",  # shot
        "#d8e4f8",  # out
        "#f79fbe",  # block
        "#c07721",  # tackle
    ),
)
LIGHT = Theme(
    ground="#f4f6f9",
    panel="#ffffff",
    line="#d3dae4",
    ink="#131b29",
    quiet="#566278",
    accent="#a85400",
    good="#0b7a4b",
    bad="#b3261e",
    actions=(
        "#4b65e5",
        "#05886c",
        "#2d3c7e",
        "#248cbf",
        "#636800",
        "#888f19",
        "#e73b9f",
        "#575757",
        "#651b50",
        "#6d3102",
    ),
)
assert len(DARK.actions) == len(LIGHT.actions) == len(ACTIONS)


def rgb(colour: str) -> Colour:
    """Convert "#697dec" to (105, 125, 236)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(a: Colour, b: Colour) -> float:
    """Return the contrast ratio of WCAG, 1 to 21: text should have 4.5, graphics 3."""
    dark, bright = sorted((_luminance(a), _luminance(b)))
    return (bright + 0.05) / (dark + 0.05)


def ink_on(ground: Colour) -> Colour:
    """Return the text colour with the best contrast on `ground`: the light or the dark one."""
    return max((rgb(DARK.ink), rgb(DARK.ground)), key=lambda ink: contrast(ink, ground))


def _luminance(colour: Colour) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def css() -> str:
    """Return a style sheet of variables: `--ground` … `--bad`, and `--action-0` … `--action-9`.

    They follow the colour scheme of the system, unless the root element has `data-theme="light"` or `"dark"`; print
    uses the light ones.
    """
    dark, light = _variables(DARK), _variables(LIGHT)
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f':root[data-theme="light"] {{ color-scheme: light; {light} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f"@media print {{ :root:root:root {{ color-scheme: light; {light} }} }}\n"  # paper is white
    )


def _variables(theme: Theme) -> str:
    shades = [f"--{f.name}: {getattr(theme, f.name)};" for f in fields(theme) if f.name != "actions"]
    return " ".join([*shades, *(f"--action-{i}: {hue};" for i, hue in enumerate(theme.actions))])

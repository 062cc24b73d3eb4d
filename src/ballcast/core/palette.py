"""The project's colours: one hue an action, and the few shades around them, on dark and on light grounds.

The overlay, the report and the live page all draw from here. The ten hues were searched for so that any two stay apart
for people who see no red or no green, and each stands out from its ground; the tests measure both. Ten are too many to
tell by colour alone, so an action's name or initials always stand beside its colour.
"""

from dataclasses import dataclass, fields

from ballcast.core.actions import ACTIONS

Colour = tuple[int, int, int]  # red, green, blue, 0–255


@dataclass(frozen=True)
class Theme:
    """Colours of one ground, as CSS writes them; `actions` in the order of ACTIONS."""

    ground: str  # of the page
    panel: str  # of a card on it
    line: str  # rules and axes
    ink: str  # text
    quiet: str  # text that may be passed over
    accent: str  # the one colour that says: look here
    good: str  # came as anticipated
    bad: str  # did not
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
    """ "#697dec" as (105, 125, 236)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrast(a: Colour, b: Colour) -> float:
    """How well one is read on the other, 1 to 21 (WCAG): text should have 4.5, graphics 3."""
    dark, bright = sorted((_luminance(a), _luminance(b)))
    return (bright + 0.05) / (dark + 0.05)


def ink_on(ground: Colour) -> Colour:
    """The text colour that is read best on `ground`: the light ink or the dark one."""
    return max((rgb(DARK.ink), rgb(DARK.ground)), key=lambda ink: contrast(ink, ground))


def _luminance(colour: Colour) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def css() -> str:
    """A style sheet of variables: `--ground` … `--bad`, and `--action-0` … `--action-9`.

    They follow what the viewer's system prefers, unless the root element says `data-theme="light"` or `"dark"`;
    on paper they are the light ones.
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

"""HTML and SVG as nested calls; text is escaped unless it is `Markup` already, so no label or file name can break out.

tag("p", "clip <1>", class_="quiet")      # <p class="quiet">clip &lt;1&gt;</p>
"""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"img", "input", "br", "meta", "line", "rect", "circle", "path", "polyline"})


class Markup(str):
    """HTML that is safe to put into a page as it is."""


Child = str | float | None | Iterable["str | None"]


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element. `class_` and `for_` lose their underscore, others turn into hyphens; None and False are left out."""
    told = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    inside = join(children)
    if name in _VOID and not inside:
        return Markup(f"<{name}{told}/>")
    return Markup(f"<{name}{told}>{inside}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """All children one after the other, escaped where they need it; None is nothing, lists are opened."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(child))
        elif isinstance(child, int | float):
            parts.append(number(child))
        else:
            parts.append(join(child))
    return Markup("".join(parts))


def number(value: float) -> str:
    """As short as drawing needs: two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
    if value is True:
        return f" {name}"
    return f' {name}="{escape(value) if isinstance(value, str) else number(value)}"'

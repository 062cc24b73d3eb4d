"""The errors for users. Each message is one sentence: the file, the place, what to do."""

from ballcast.core.util import install_command


class BallcastError(Exception):
    """Root of all errors that ballcast raises on purpose; the command line prints it and exits with 2.

    The message is one line that any terminal can print, whatever text it quotes: line breaks, control characters and
    halves of surrogate pairs are shown as escapes.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class BallcastWarning(UserWarning):
    """A warning for users; the command line prints it as one sentence and continues."""


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of a library's error, cut to `most` characters, or its type where it has none: for a sentence."""
    return str(error).strip().partition("\n")[0].strip()[:most] or type(error).__name__


class InputError(BallcastError):
    """A file, a folder or a value given by the user is invalid."""


class MissingExtra(BallcastError):
    """A package is not installed.

    Args:
        package: its name.
        extra: the extra of ballcast that brings it; "": it belongs to every installation.
        why: what it is needed for, and other ways, to begin the sentence with.
        command: what installs it, if not the extra.
    """

    def __init__(self, package: str, extra: str = "", why: str = "", command: str = "") -> None:
        needed = f"{why}, or install {package}" if why else f"this needs {package}, which is not installed"
        super().__init__(f"{needed}: {command or install_command(extra)}")


class NoSpace(BallcastError):
    """The disk is full, or would be before the end of the work."""

"""The errors a user can meet. Each message is one sentence: the file, the place, what to do."""


class BallcastError(Exception):
    """Root of all errors ballcast raises on purpose; the command line prints it and exits with 2."""


class BallcastWarning(UserWarning):
    """Something a user should know, though the work goes on; the command line prints it as one sentence."""


class InputError(BallcastError):
    """A file, a folder or a value the user gave is not what it must be."""


class MissingExtra(BallcastError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: pip install 'ballcast[{extra}]'")


class NoSpace(BallcastError):
    """The disk is full, or would be before the work is done."""

"""How a stream is followed: what a request sets, and what `streams.json` keeps."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ballcast.core.actions import ACTION_INDEX
from ballcast.core.errors import InputError

STREAM_NAME = re.compile(r"[\w-]{1,40}")


class StreamOptions(BaseModel):
    """What is done with a stream besides showing it to viewers."""

    always: bool = Field(default=True, description="Follow it without viewers too.")
    alerts: dict[str, float] = Field(default={}, description="Least probability of an alert, by action.")
    clips: bool = Field(default=False, description="Keep the seconds around each alert as mp4.")


class StreamConfig(StreamOptions):
    """A stream of the server, as `streams.json` keeps it; an InputError if it cannot be one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    address: str
    fixed: bool = False  # given on the command line, and not changed while the server runs

    def model_post_init(self, _: Any) -> None:
        """Check what types do not."""
        if not STREAM_NAME.fullmatch(self.name):
            raise InputError(f"{self.name!r}: a stream's name has letters, digits, - and _, at most 40")
        for action, threshold in self.alerts.items():
            if action not in ACTION_INDEX:
                raise InputError(f"{action!r}: is not an action; there are {', '.join(ACTION_INDEX)}")
            if not 0 < threshold <= 1:
                raise InputError(f"{action}: an alert's threshold is a probability over 0 and up to 1")
        if self.clips and not self.alerts:
            raise InputError("clips are kept of alerts; give alerts too")

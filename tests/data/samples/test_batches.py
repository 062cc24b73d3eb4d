"""Where data go: as asked for, or to the nearest place with room."""

import pytest
import torch

from ballcast.core.errors import InputError
from ballcast.data.samples.batches import place

CPU = torch.device("cpu")


def test_what_is_asked_for_is_done_or_refused() -> None:
    assert place(1, CPU, "disk") == "disk"
    assert place(1 << 60, CPU, "memory") == "memory"
    with pytest.raises(InputError, match="device=gpu needs a GPU"):  # of features and of frames alike
        place(1, CPU, "gpu")


def test_the_nearest_place_with_room() -> None:
    assert place(1, CPU) == "memory"
    assert place(1 << 60, CPU) == "disk"

"""key=value of `predict` and `live`: what would change nothing is told, not taken."""

import pytest

from ballcast.cli.runtime import changed_emission
from ballcast.core.anticipator_config import EmitConfig
from ballcast.core.errors import InputError

SLOT, EXPECTED = EmitConfig(inflation=2.5), EmitConfig(mode="expected", inflation=2.5)


def test_changes_are_made_to_the_models_own_way() -> None:
    assert changed_emission(SLOT, ["emit.threshold=0.1", "run=6"], shown=True) == EmitConfig(
        threshold=0.1, run=6, inflation=2.5
    )
    asked = changed_emission(SLOT, ["mode=expected", "reach_ms=640"], shown=False)
    assert (asked.mode, asked.reach_ms, asked.inflation) == ("expected", 640, 2.5)
    assert changed_emission(EXPECTED, ["inflation=0"], shown=False).inflation == 2.5  # 0: as its loss says
    assert changed_emission(EXPECTED, [], shown=False) == EXPECTED
    # Along a video such a model's slots speak one by one, so tau is a question there.
    assert changed_emission(EXPECTED, ["threshold=0.1"], shown=True) == EmitConfig(threshold=0.1, inflation=2.5)


@pytest.mark.parametrize(
    ("own", "asked", "shown", "words"),
    [
        (
            EXPECTED,
            "threshold=0.1",
            False,
            r"^threshold=0\.1 changes nothing with mode=expected; .* mode=slot or mode=class",
        ),
        (EXPECTED, "vector=emitted", False, "^vector=emitted changes nothing"),
        (EXPECTED, "run=6", False, "^run=6 changes nothing"),
        (SLOT, "reach_ms=640", False, r"^reach_ms=640 changes nothing with mode=slot; .* mode=expected"),
        (EXPECTED, "inflation=1", True, "^inflation=1 changes nothing with mode=slot"),
        (SLOT, "mode=expected", True, "^mode=expected is for submissions"),
    ],
)
def test_what_changes_nothing_is_an_error(own: EmitConfig, asked: str, shown: bool, words: str) -> None:
    with pytest.raises(InputError, match=words):
        changed_emission(own, [asked], shown=shown)

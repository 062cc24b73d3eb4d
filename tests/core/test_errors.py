"""A message is one line that any terminal can print."""

from ballcast.core.errors import InputError


def test_what_a_file_holds_cannot_break_the_line() -> None:
    said = str(InputError("f.yaml: unknown key 'a\nb\x1b[31m\ud800'; did you mean 'é'?"))
    assert said == r"f.yaml: unknown key 'a\nb\x1b[31m\ud800'; did you mean 'é'?"
    assert said.encode()

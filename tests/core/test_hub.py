"""What is pushed to the hub, fetched from it, and refused by it."""

from pathlib import Path

import pytest
from hub_server import Hub

from ballcast.core import hub as hubs
from ballcast.core.errors import InputError

LARGE = bytes(range(256)) * 2000  # 512 kB: .safetensors take the way of large files


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub tries a cut connection again five times, up to 8 s apart."""
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)


def push(repo_id: str = "me/model", private: bool = True, **content: bytes) -> str:
    files: dict[str, Path | bytes] = {name.replace("__", "."): data for name, data in content.items()}
    return hubs.push(repo_id, files, private=private, replaces=("old.*", "*.safetensors"))


def test_what_is_pushed_comes_back(on_hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(LARGE)
    files: dict[str, Path | bytes] = {
        "config.json": b"{}",
        "a/b.safetensors": tmp_path / "file",
        "README.md": b"---\n---\n",
    }
    assert hubs.push("me/model", files, private=True, replaces=()) == f"{on_hub.url}/me/model"
    assert on_hub.of("me/model") == {"config.json": b"{}", "a/b.safetensors": LARGE, "README.md": files["README.md"]}
    assert len(on_hub.commits) == 1
    folder = hubs.locate("me/model", ["config.json", "a/*.safetensors"], also=["missing.json"])
    assert {p.name for p in folder.rglob("*") if p.is_file()} == {"config.json", "b.safetensors"}
    assert (folder / "a" / "b.safetensors").read_bytes() == LARGE


def test_the_kinds_are_kept_apart(on_hub: Hub) -> None:
    hubs.push("me/same", {"x": b"1"}, private=True, kind="dataset", replaces=())
    with pytest.raises(InputError, match="me/same: no such folder, and the hub does not provide it"):
        hubs.locate("me/same", ["x"])
    assert (hubs.locate("me/same", ["x"], kind="dataset") / "x").read_bytes() == b"1"


def test_a_second_push_replaces_the_first_and_leaves_what_is_not_ours(on_hub: Hub) -> None:
    push(a__safetensors=LARGE, old__json=b"1", notes__txt=b"mine")
    push(b__safetensors=LARGE[::-1], config__json=b"2")
    assert set(on_hub.of("me/model")) == {"b.safetensors", "config.json", "notes.txt"}
    before = len(on_hub.commits)
    push(b__safetensors=LARGE[::-1], config__json=b"2")  # nothing new: no commit
    assert len(on_hub.commits) == before
    folder = hubs.locate("me/model", ["*"])
    assert (folder / "b.safetensors").read_bytes() == LARGE[::-1]


def test_after_a_cut_nothing_is_half_there_and_what_arrived_is_not_sent_again(on_hub: Hub) -> None:
    first, second = LARGE, LARGE[::-1]
    push(config__json=b"old")
    on_hub.upload_cuts = [len(LARGE), *[1000] * 10]  # the first of the two arrives, whichever it is
    with pytest.raises(InputError, match=r"^me/model: cannot upload to the hub: .*run again$") as caught:
        push(a__safetensors=first, b__safetensors=second, config__json=b"new")
    assert "\n" not in str(caught.value)
    assert on_hub.of("me/model") == {"config.json": b"old"}
    on_hub.upload_cuts, arrived = [], set(on_hub.stored)
    assert len(arrived) == 1
    push(a__safetensors=first, b__safetensors=second, config__json=b"new")
    assert on_hub.of("me/model") == {"a.safetensors": first, "b.safetensors": second, "config.json": b"new"}
    assert on_hub.received[arrived.pop()] == len(LARGE)  # once


def test_a_private_repository_is_there_for_its_owner_alone(on_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(config__json=b"{}")
    assert on_hub.private == {"me/model": True}
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(InputError, match=r"me/model: no such folder, and .* not authenticated .*hf auth login"):
        hubs.locate("me/model", ["config.json"])


def test_nothing_private_goes_into_a_public_repository(on_hub: Hub) -> None:
    push(private=False, config__json=b"{}")
    assert on_hub.private == {"me/model": False}
    with pytest.raises(InputError, match="me/model: is public already, and private was requested"):
        push(config__json=b"secret")
    push("me/other", config__json=b"{}")
    with pytest.raises(InputError, match="me/other: is private already, and public was requested"):
        push("me/other", private=False, config__json=b"1")
    assert on_hub.of("me/model") == on_hub.of("me/other") == {"config.json": b"{}"}


def test_what_the_hub_refuses_is_one_sentence(on_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, words in [
        ((401, ""), "not authenticated .401.; log in with `hf auth login`, or set HF_TOKEN"),
        ((403, ""), "your token has no permission for this .403."),
        ((500, ""), "500"),
    ]:
        on_hub.refuse = setting
        with pytest.raises(InputError, match=words) as caught:
            push(config__json=b"{}")
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("me/model: cannot upload to the hub: ")
    on_hub.refuse = None
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(InputError, match="not authenticated"):
        push(config__json=b"{}")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(InputError, match="not authenticated"):
        push(config__json=b"{}")
    assert on_hub.files == {}


def test_bad_names_and_no_hub_at_all(on_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model", "a/b/c", "", "../x", "a/b c"):
        with pytest.raises(InputError, match="is not a name on the hub; it has the form owner/name"):
            push(name, config__json=b"{}")
    assert on_hub.asked == []
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    for try_it in (lambda: push(config__json=b"{}"), lambda: hubs.locate("me/model", ["config.json"])):
        with pytest.raises(
            InputError, match=r"connection to http://127.0.0.1:9 failed .*; check the network and run again"
        ):
            try_it()


def test_a_card_that_is_no_yaml_is_refused_before_anything_is_sent(on_hub: Hub) -> None:
    with pytest.raises(InputError, match="Invalid metadata in README"):
        push(README__md=b"---\na: [\n---\n", a__safetensors=LARGE)
    assert on_hub.stored == {}

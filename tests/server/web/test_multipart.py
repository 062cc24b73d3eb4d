"""`curl -F` and what pretends to be it."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ballcast_server.settings import RequestError
from ballcast_server.web.multipart import MAX_FIELD, MAX_HEADERS, MultipartFile
from ballcast_server.web.uploads import shown_name
from tests.server.conftest import Serve

TYPE = "multipart/form-data; boundary=XY"


def part(content: bytes, headers: bytes = b'Content-Disposition: form-data; name="file"; filename="a.mp4"') -> bytes:
    return b"--XY\r\n" + headers + b"\r\n\r\n" + content + b"\r\n"


FIELD = part(b"1", b'Content-Disposition: form-data; name="x"')


def read(body: bytes, kind: str = TYPE, cuts: list[int] | None = None) -> tuple[str, bytes]:
    """The name and content of the body's file, the body arriving in pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts or [])})
        for begin, end in pairwise(places):
            yield body[begin:end]

    async def run() -> tuple[str, bytes]:
        file = MultipartFile(pieces(), kind)
        return await file.open(), b"".join([piece async for piece in file])

    return asyncio.run(run())


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from([b"\r\n", b"--", b"XY", b"\r\n--X", b"a", b"\n--XY", b"\0"]), max_size=12).map(b"".join),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.booleans(),
)
def test_any_content_in_any_pieces_comes_out_as_it_went_in(content: bytes, cuts: list[int], field: bool) -> None:
    if b"\r\n--XY" in b"\r\n" + content:
        return
    body = FIELD * field + part(content) + FIELD * field + b"--XY--"
    assert read(body, cuts=cuts) == ("a.mp4", content)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "ends before its last boundary"),
        (b"hello" + part(b"x") + b"--XY--", 400, "does not begin with its boundary"),
        (part(b"x"), 400, "ends before its last boundary"),
        (part(b"x")[:-4], 400, "ends before its last boundary"),
        (FIELD + b"--XY--", 422, "there is no file in the form"),
        (part(b"x") + part(b"y") + b"--XY--", 422, "more than one file"),
        (part(b"x", b"X-Other: 1") + b"--XY--", 400, "no Content-Disposition"),
        (part(b"x", b"X" * (MAX_HEADERS + 9)) + b"--XY--", 400, "headers are too long"),
        (b"--XY" + b"z" * 100, 400, "followed by other bytes"),
        (part(b"x", b"Content Disposition: form-data") + b"--XY--", 400, "headers are malformed"),
        (part(b"x", b"A: b\r\n" * 9) + b"--XY--", 400, "headers are too long"),
        (b"--XYZ\r\n" + part(b"x") + b"--XY--", 400, "followed by other bytes"),
        (part(b"1" * (MAX_FIELD + 1), b"Content-Disposition: form-data; name=x") + b"--XY--", 413, "too large fields"),
        (FIELD * 30 + part(b"x") + b"--XY--", 413, "too many"),
    ],
)
def test_a_hostile_form_is_refused(body: bytes, status: int, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        read(body)
    assert caught.value.status == status


@pytest.mark.parametrize(
    "kind", ["multipart/form-data", 'multipart/form-data; boundary="', "multipart/form-data; boundary="]
)
def test_a_form_without_a_boundary_is_refused(kind: str) -> None:
    with pytest.raises(RequestError, match="has no boundary"):
        read(part(b"x") + b"--XY--", kind)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b'filename="K\xc3\xb6ln.mp4"', "Köln.mp4"),
        (b'filename="K\xf6ln.mp4"', "Köln.mp4"),  # Latin-1
        (b"filename*=UTF-8''K%C3%B6ln.mp4", "Köln.mp4"),
        (b'filename="a \\"b\\".mp4"', 'a "b".mp4'),
        (b'filename="a %22b%22.mp4"', 'a "b".mp4'),
        (b'filename="../../etc/passwd"', "passwd"),
        (b'filename="100%25.mp4"', "100%25.mp4"),
    ],
)
def test_names(sent: bytes, shown: str) -> None:
    name, _ = read(part(b"x", b"Content-Disposition: form-data; name=file; " + sent) + b"--XY--")
    assert shown_name(name) == shown


def test_curl_uploads_a_form(serving: Serve, clip: Path, tmp_path: Path) -> None:
    """With umlauts in the name, in a form and in a header, with labels, and a form that is no video."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    server = serving()
    named = tmp_path / "Köln – Grün-Weiß.mp4"
    named.write_bytes(clip.read_bytes())

    def curl(*arguments: str) -> str:
        return subprocess.run(
            ["curl", "-sS", *arguments], capture_output=True, check=True, text=True, timeout=60
        ).stdout

    assert f'"name":"{named.name}"' in curl("-F", f"file=@{named}", f"{server.url}/api/uploads")
    body = ("--data-binary", f"@{named}", "-H", "Content-Type: video/mp4")
    assert f'"name":"{named.name}"' in curl(*body, "-H", f"X-File-Name: {named.name}", f"{server.url}/api/uploads")
    first, second = (server.until(job["id"], "done") for job in server.client.get("/api/jobs").json())
    stored = [server.service.jobs.folder(job["id"]) / "video" for job in (first, second)]
    assert [path.read_bytes() for path in stored] == [clip.read_bytes()] * 2
    (tmp_path / "labels.json").write_text('{"annotations": [{"label": "SHOT", "position": "8000", "team": "left"}]}')
    labelled = curl(
        "-X", "PUT", "-F", f"file=@{tmp_path / 'labels.json'}", f"{server.url}/api/jobs/{first['id']}/labels"
    )
    assert '"label":"SHOT"' in labelled
    (tmp_path / "notes.mp4").write_text("not a video")
    assert "this is not a video" in curl("-F", f"file=@{tmp_path / 'notes.mp4'}", f"{server.url}/api/uploads")
    assert len(list(server.service.jobs.folder("x").parent.iterdir())) == 2  # a refused upload leaves nothing


def test_a_form_is_bounded_as_a_body_is(serving: Serve) -> None:
    server = serving(limits={"upload_bytes": 10_000})
    answer = server.client.post("/api/uploads", files={"file": ("big.mp4", b"\0\0\0 ftyp" + bytes(20_000))})
    assert answer.status_code == 413
    assert "(--max-upload)" in answer.json()["error"]
    assert server.client.get("/api/jobs").json() == []


def test_a_wrong_token_is_called_wrong(serving: Serve) -> None:
    server = serving(token="the right token, long enough")
    wrong = server.client.get("/api/jobs", headers={"Authorization": "Bearer guess"})
    none = server.client.get("/api/jobs")
    assert (wrong.status_code, none.status_code) == (401, 401)
    assert wrong.json()["error"].startswith("wrong token")
    assert none.json()["error"].startswith("not authenticated")

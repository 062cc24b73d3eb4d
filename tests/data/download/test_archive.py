"""Encrypted zips: which fault is which, and what is refused."""

import random
import stat
from io import BytesIO
from pathlib import Path

import pytest
import pyzipper
from pyzipper.zipfile_aes import AESZipInfo

from ballcast.core.errors import BallcastError, InputError, NoSpace
from ballcast.data.download.archive import Archive


def make(path: Path, files: dict[str, bytes], *, method: int = pyzipper.ZIP_STORED, version: int = 2) -> Path:
    with pyzipper.AESZipFile(path, "w", compression=method) as archive:
        archive.setpassword(b"pa55")
        archive.setencryption(pyzipper.WZ_AES, force_wz_aes_version=version)
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def files() -> dict[str, bytes]:
    return {f"clip_{i}/224p.mp4": random.Random(i).randbytes(5000 + i) for i in range(4)} | {
        "Labels-ball.json": b"{}" * 50
    }


METHODS = [pyzipper.ZIP_STORED, pyzipper.ZIP_DEFLATED, pyzipper.ZIP_BZIP2, pyzipper.ZIP_LZMA]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("version", [1, 2])
def test_every_kind_of_aes_zip_opens(tmp_path: Path, files: dict[str, bytes], method: int, version: int) -> None:
    with Archive(make(tmp_path / "a.zip", files, method=method, version=version), password="pa55") as archive:
        archive.check_password()
        for member in archive.members:
            counted: list[int] = []
            archive.unpack(member, tmp_path / "out" / member.path, counted.append)
            assert (tmp_path / "out" / member.path).read_bytes() == files[str(member.path)]
            assert sum(counted) == member.size


def test_a_wrong_password_is_not_called_a_broken_archive(tmp_path: Path, files: dict[str, bytes]) -> None:
    path = make(tmp_path / "a.zip", files)
    for i in range(20):
        with Archive(path, password=f"no {i}") as archive, pytest.raises(InputError, match="password is wrong"):
            archive.check_password()


def test_a_damaged_member_is_not_called_a_wrong_password(tmp_path: Path, files: dict[str, bytes]) -> None:
    path = make(tmp_path / "a.zip", files)
    with pyzipper.AESZipFile(path) as archive:
        header = archive.getinfo("Labels-ball.json").header_offset
    whole = path.read_bytes()
    # 30 bytes of header, the name, 11 of AES field; then 16 of salt, 2 to know the password by, and the data.
    salt = header + 30 + len("Labels-ball.json") + 11
    for at in (salt, salt + 16, salt + 18):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with Archive(path, password="pa55") as opened, pytest.raises(InputError, match="broken"):
            opened.check_password()


@pytest.mark.parametrize("method", METHODS)
def test_damage_is_a_sentence_or_did_not_matter(tmp_path: Path, files: dict[str, bytes], method: int) -> None:
    whole = make(tmp_path / "a.zip", files, method=method, version=1).read_bytes()
    chance, noticed = random.Random(method), 0
    for _ in range(80):
        broken = bytearray(whole)
        # half of the time in the directory at the end, which is small and where most of the meaning is
        low = chance.choice([0, len(broken) - 500])
        broken[chance.randrange(low, len(broken))] ^= 1 << chance.randrange(8)
        (tmp_path / "b.zip").write_bytes(broken[: chance.choice([len(broken), chance.randrange(len(broken))])])
        try:
            with Archive(tmp_path / "b.zip", password="pa55") as archive:
                archive.check_password()
                for member in archive.members:
                    archive.unpack(member, tmp_path / "out" / "x")
                    assert (tmp_path / "out" / "x").read_bytes() in files.values()
        except BallcastError:
            noticed += 1
        assert [p.name for p in (tmp_path / "out").rglob("*")] in ([], ["x"])
    assert noticed > 40


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "C:/evil", "C:\\evil", "..\\evil", "a\\..\\..\\evil"]
)
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="outside"):
        Archive(make(tmp_path / "a.zip", {"clip_1/224p.mp4": b"ok", name: b"no"}), password="pa55")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    link = AESZipInfo("clip_1/224p.mp4")
    link.external_attr = (kind | 0o777) << 16
    with pyzipper.AESZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, b"/etc/passwd")
    with pytest.raises(InputError, match="link or a device"):
        Archive(tmp_path / "a.zip", password="")


def test_a_bomb_an_empty_zip_and_a_name_twice_are_refused(tmp_path: Path) -> None:
    out = BytesIO()
    with pyzipper.AESZipFile(out, "w", compression=pyzipper.ZIP_DEFLATED) as archive:
        archive.writestr("clip_1/224p.mp4", bytes(10_000_000))
    (tmp_path / "bomb.zip").write_bytes(out.getvalue())
    with pytest.raises(InputError, match="10000000"):
        Archive(tmp_path / "bomb.zip", password="")
    with pytest.raises(InputError, match="no files"):
        Archive(make(tmp_path / "empty.zip", {}), password="")
    with pytest.raises(InputError, match="twice"):
        Archive(make(tmp_path / "twice.zip", {"a/b": b"1", "a\\b": b"2"}), password="")


def test_a_full_disk_leaves_nothing_under_the_final_name(tmp_path: Path, small_disk: Path) -> None:
    path = make(tmp_path / "a.zip", {"clip_1/224p.mp4": random.Random(0).randbytes(3_000_000)})
    with Archive(path, password="pa55") as archive, pytest.raises(NoSpace, match="disk is full"):
        archive.unpack(archive.members[0], small_disk / "clip_1" / "224p.mp4")
    assert list((small_disk / "clip_1").iterdir()) == []

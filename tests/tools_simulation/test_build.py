"""Building the engine: what is missing is said before anything is done, and a broken source is refused."""

import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest

from ballcast.core.errors import InputError
from tools.simulation import build


def source_archive(folder: Path, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{build.SOURCE}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    (folder / f"{build.SOURCE}.tar.gz").write_bytes(buffer.getvalue())
    return buffer.getvalue()


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in ("cmake", "patch") else tool)
    with pytest.raises(InputError, match="cmake and patch must be installed"):
        build.build_engine(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_another_source_is_refused(tmp_path: Path) -> None:
    source_archive(tmp_path, {"setup.py": b""})
    with pytest.raises(InputError, match=r"gfootball-2\.10\.2\.tar\.gz: is not gfootball 2\.10\.2"):
        build.unpack_source(tmp_path)


def test_a_source_is_unpacked_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patched source of an earlier build cannot be patched again."""
    content = source_archive(tmp_path, {"setup.py": b"new"})
    monkeypatch.setattr(build, "SOURCE_SHA256", hashlib.sha256(content).hexdigest())
    (tmp_path / build.SOURCE).mkdir()
    (tmp_path / build.SOURCE / "patched").write_text("")
    source = build.unpack_source(tmp_path)
    assert [path.name for path in source.iterdir()] == ["setup.py"]


def test_the_package_is_put_together(tmp_path: Path) -> None:
    for name in ("project/data/a.bmp", "project/__init__.py", "fonts/f.ttf", "engine/gfootball_engine/old"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    shutil.copy("/bin/true", tmp_path / "libgame.so")  # something that can be stripped
    engine = build.install(tmp_path / "project", tmp_path / "fonts", tmp_path / "libgame.so", tmp_path / "engine")
    assert engine == tmp_path / "engine"
    package = engine / "gfootball_engine"
    assert sorted(str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()) == [
        "__init__.py",
        "_gameplayfootball.so",
        "data/a.bmp",
        "fonts/f.ttf",
    ]


def test_the_log_says_why_a_step_failed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sh failed; .*build\.log says why"):
        build._run(tmp_path, "sh", "-c", "echo no compiler; exit 3")
    assert "no compiler" in (tmp_path / "build.log").read_text()


def test_the_patch_is_for_that_source() -> None:
    text = build.PATCH.read_text()
    assert text.startswith("diff -ruN a/third_party/gfootball_engine/src/")
    assert "nameCaption->Hide();" in text  # no name tag over players
    assert "radar->Hide();" in text

"""Packing is repeatable and leaves out what it should; unpacking trusts nothing."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from trek.errors import InputError
from trek.experiments.package import inspect, pack, unpack, unpack_once


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    (model / "model_def.py").write_text("x = 1\n")
    (model / "inner" / "net.py").write_text("y = 2\n")
    for name in (".git", ".venv", "__pycache__"):
        (model / name).mkdir()
        (model / name / "big").write_text("no")
    return model


def names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def test_the_same_files_pack_to_the_same_bytes(folder: Path) -> None:
    first = pack(folder)
    os.utime(folder / "model_def.py", (1, 1))
    assert pack(folder).sha256 == first.sha256


def test_history_environments_and_caches_are_left_out(folder: Path) -> None:
    package = pack(folder)
    assert names(package.data) == ["inner/net.py", "model_def.py"]
    assert (package.num_files, package.num_bytes) == (2, 12)


def test_ignore_files_are_respected(folder: Path) -> None:
    (folder / ".trekignore").write_text("inner/\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "run.log").write_text("noise")
    assert names(pack(folder).data) == [".gitignore", ".trekignore", "model_def.py"]


def test_a_folder_over_the_limit_is_refused_with_its_largest_file(folder: Path) -> None:
    (folder / "data.bin").write_bytes(b"0" * 2000)
    with pytest.raises(InputError, match=r"the largest file is data\.bin.*\.trekignore"):
        pack(folder, max_bytes=1000)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        pack(tmp_path / "none")


def test_what_was_packed_unpacks(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    assert unpack(pack(folder).data, tmp_path / "out") == 3
    assert (tmp_path / "out" / "inner" / "net.py").read_text() == "y = 2\n"
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)


def test_a_second_unpacking_leaves_the_first_alone(folder: Path, tmp_path: Path) -> None:
    unpack_once(pack(folder).data, tmp_path / "code")
    (tmp_path / "code" / "model_def.py").write_text("changed")
    unpack_once(pack(folder).data, tmp_path / "code")
    assert (tmp_path / "code" / "model_def.py").read_text() == "changed"


def archive(member: tarfile.TarInfo, content: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def info(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


@pytest.mark.parametrize(
    "member",
    [
        info("../evil"),
        info("/etc/evil"),
        info("a/../../evil"),
        info("..\\evil"),
        info("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        info("link", kind=tarfile.LNKTYPE, link="../x"),
        info("device", kind=tarfile.CHRTYPE),
        info("pipe", kind=tarfile.FIFOTYPE),
    ],
    ids=lambda member: member.name,
)
def test_a_hostile_member_is_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    data = archive(member)
    with pytest.raises(InputError):
        inspect(data)
    with pytest.raises(InputError):
        unpack(data, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    data = archive(info("zeros", size=5_000_000), b"\0" * 5_000_000)
    assert len(data) < 10_000
    with pytest.raises(InputError, match="more than"):
        inspect(data, max_bytes=1_000_000)
    with pytest.raises(InputError, match="more than"):
        unpack(data, tmp_path / "out", max_bytes=1_000_000)


@pytest.mark.parametrize("data", [b"", b"not an archive", b"\x1f\x8b\x08\x00torn"])
def test_a_damaged_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="damaged"):
        inspect(data)
    with pytest.raises(InputError, match="damaged"):
        unpack(data, tmp_path / "out")

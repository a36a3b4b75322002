"""A folder as a tar that is made while it is sent, without a copy on disk or in memory."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 2**20


def tar_stream(folder: Path) -> Iterator[bytes]:
    """The regular files of `folder` as the bytes of a tar."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        info = tarfile.TarInfo(path.relative_to(folder).as_posix())
        info.size, info.mode = path.stat().st_size, 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                yield part
        yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)

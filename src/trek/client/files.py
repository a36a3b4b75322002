"""Unpacks folders that a control plane sends, without trusting the names in them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO

from trek.errors import InputError, OutsideError, StorageError


def unpack_files(file: IO[bytes], target: Path) -> None:
    """Unpack a tar of regular files into `target`, which must not exist yet."""
    if target.exists():
        raise InputError(f"{str(target)!r} already exists. Name another folder.")
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            target.mkdir(parents=True)
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise OutsideError(f"the download is incomplete or damaged: {error}. Try again.") from error
    except OSError as error:
        raise StorageError(f"cannot write to {str(target)!r}: {error.strerror}.") from error

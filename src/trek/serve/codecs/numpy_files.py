"""NpyFile and NpzFile: arrays as NumPy writes them. Never a pickle."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from trek.errors import InputError
from trek.serve.codecs.base import Answer, Codec, Request, check_names

_DAMAGED = (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises; a head may announce an array that no memory holds."""
_MAX_ANSWER_BYTES = 1 << 30
_BYTES_PER_CHARACTER = 4
ONLY = ""
"""The name of the input of a file that names none."""


class NpyFile(Codec):
    """One array: the only input; the answer is the first output."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The array."""
        found = _load(body)
        if not isinstance(found, np.ndarray):
            raise InputError("the body has arrays by name. Send it as application/x-npz.")
        return Request({ONLY: _with_values(found)})

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The array of the first output."""
        file = io.BytesIO()
        np.save(file, _savable(next(iter(outputs.values()))), allow_pickle=False)
        return Answer(file.getvalue(), "application/x-npy")


class NpzFile(Codec):
    """Arrays by name."""

    def decode(self, body: memoryview, *, headers: Mapping[str, str]) -> Request:
        """The arrays."""
        found = _load(body)
        if isinstance(found, np.ndarray):
            raise InputError("the body is a single array. Send it as application/x-npy.")
        self.require_size(_uncompressed(body))
        check_names(found.files)
        try:
            return Request({name: _with_values(found[name]) for name in found.files})
        except _DAMAGED as error:
            raise InputError(f"the body is not a NumPy file: {error}.") from None

    def encode(self, outputs: Mapping[str, np.ndarray], *, request: Request, model: str, version: str) -> Answer:
        """The arrays by name."""
        file = io.BytesIO()
        np.savez(file, **{name: _savable(array) for name, array in outputs.items()})  # type: ignore[arg-type]
        return Answer(file.getvalue(), "application/x-npz")


def _with_values(array: np.ndarray) -> np.ndarray:
    """`array`; InputError for texts without a character, of which a head alone can announce any number."""
    if not array.dtype.itemsize:
        raise InputError(f"the body has an array of {array.dtype}, whose values have no bytes.")
    return array


def _uncompressed(body: memoryview) -> int:
    """Bytes of all arrays of a file that NumPy could open."""
    with zipfile.ZipFile(io.BytesIO(body)) as packed:
        return sum(one.file_size for one in packed.infolist())


def _load(body: memoryview) -> np.ndarray | np.lib.npyio.NpzFile:
    try:
        found: np.ndarray | np.lib.npyio.NpzFile = np.load(io.BytesIO(body), allow_pickle=False)
    except _DAMAGED as error:
        raise InputError(f"the body is not a NumPy file without pickles: {error}.") from None
    return found


def _savable(array: np.ndarray) -> np.ndarray:
    """`array` as NumPy can write it: each text is as wide as the longest one."""
    if array.dtype != object:
        return array
    num_bytes = array.size * max((len(one) for one in array.reshape(-1).tolist()), default=0) * _BYTES_PER_CHARACTER
    if num_bytes > _MAX_ANSWER_BYTES:
        raise InputError("the texts of the answer are larger than 1 GiB as a NumPy file. Ask for JSON or Arrow.")
    return array.astype(str)

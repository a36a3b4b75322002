"""PackedModel: a model and its code as bytes, for machines that do not see this disk.

A file or folder of this disk is packed whole, with the Python files of the model, as `trek archive` chooses them. What
is at a URL is not packed: every machine fetches it itself.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from trek.errors import InputError
from trek.serve.handlers.model_code import code_files
from trek.serve.model_source import ModelSource
from trek.system.urls import is_remote

_CODE, _MODEL = "code", "model"
_unpacking = threading.Lock()
_unpacked: dict[str, Path] = {}
"""The folders of this process, by the digests of what is in them."""


@dataclass(frozen=True, eq=False)
class PackedModel:
    """What any machine needs to load a model."""

    travels_once: ClassVar[bool] = True
    """Executors send it to each worker once, not with every partition."""
    source: ModelSource
    content: np.ndarray
    """The bytes of a zip file; an array, which Ray's store holds once for all processes of a node."""

    @classmethod
    def of(cls, source: ModelSource) -> PackedModel:
        """Read the model of `source`, and its code."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for name, path in _files(source):
                archive.write(path, name)
        return cls(source, np.frombuffer(packed.getvalue(), np.uint8))

    def unpack(self) -> ModelSource:
        """The model on the disk of this machine, for as long as this process lives."""
        folder = _unpack_once(self.content)
        place = folder / _MODEL / Path(self.source.address).name
        address = str(place) if place.exists() else self.source.address
        return replace(self.source, address=address, code=str(folder / _CODE))


def _unpack_once(content: np.ndarray) -> Path:
    packed = content.tobytes()
    digest = hashlib.sha256(packed).hexdigest()
    with _unpacking:
        if digest not in _unpacked:
            folder = Path(tempfile.mkdtemp(prefix="trek-model-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            (folder / _CODE).mkdir()
            # Packed by the process that this one works for, so its names are those that `_files` gives.
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                archive.extractall(folder)
            _unpacked[digest] = folder
        return _unpacked[digest]


def _files(source: ModelSource) -> Iterator[tuple[str, Path]]:
    place = Path(source.address)
    found = [] if is_remote(source.address) else [place] if place.is_file() else sorted(place.rglob("*"))
    for path in found:
        if path.is_file():
            yield f"{_MODEL}/{path.relative_to(place.parent)}", path
    if source.kind != "archive":  # which has its code in it
        for name, path in code_files(_module(source), Path(source.code)).items():
            yield f"{_CODE}/{name}", path


def _module(source: ModelSource) -> str:
    """The module of the model's code."""
    named = source.address if source.kind == "function" else source.trial or _trial_of(source.address)
    module, separator, _ = named.partition(":")
    if not separator:
        raise InputError(
            f"the code of model {str(source)!r} is not known: it names no Trial. Pass its module and class "
            "(--trial module:Class), or serve module:function."
        )
    return module


def _trial_of(address: str) -> str:
    from trek.train.checkpointing.checkpoint_folder import open_checkpoint

    description = open_checkpoint(address).manifest.get("trial") or {}
    return str(description.get("entrypoint", ""))

"""Persisted tables as they are read: the manifest, and shards whose bytes are those that were written.

A shard is compared with the manifest's checksum before its first row is read, and again when the file is another than
the one that was compared. Knows nothing of how tables are written; see `persist`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from trek.data import tensors
from trek.data.execution.parts import open_mapped
from trek.data.plans.plan import PlanNode, Source, Stream
from trek.data.sources.memory import BATCH_ROWS
from trek.data.storing.table_folder import MANIFEST
from trek.errors import DataUnavailable
from trek.fingerprints import Fingerprint

Storage = Literal["parquet", "arrow"]
_State = tuple[int, int, int]
"""Size, time of change and number of a file: others for other bytes."""


@dataclass(frozen=True)
class Shard:
    """One file of a persisted table."""

    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a persisted folder holds."""

    fingerprint: str
    storage: Storage
    schema: dict[str, str]
    shards: tuple[Shard, ...]
    version: int = 1
    files: dict[str, list[str]] = field(default_factory=dict)
    """Files that the plan's functions hold paths of: what they held before and after, since a function may write."""

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in `folder`."""
        try:
            return cls.parse((folder / MANIFEST).read_text())
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataUnavailable(f"{folder / MANIFEST} cannot be read: {error}.") from error

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """The manifest in the text that `write` wrote."""
        content = json.loads(text)
        shards = tuple(Shard(**shard) for shard in content.pop("shards"))
        return cls(**content, shards=shards)

    def is_of(self, found: Fingerprint, storage: Storage) -> bool:
        """Whether it describes the result of the plan with this fingerprint."""
        now = {str(file.path): file.digest for file in found.files}
        is_same = (self.fingerprint, self.storage) == (found.outline, storage) and now.keys() == self.files.keys()
        return is_same and all(digest in self.files[path] for path, digest in now.items())

    def write(self, folder: Path) -> None:
        """Write the manifest into `folder`."""
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1))


class PersistedSource(Source):
    """A persisted folder, a partition for each shard."""

    is_fixed = True

    def __init__(self, folder: Path, manifest: Manifest, *, columns: Sequence[str] | None = None) -> None:
        self.folder = folder
        self.manifest = manifest
        self.columns = columns
        self._verified: dict[int, _State] = {}
        self._mapped: pa.Table | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}

    @classmethod
    def open(cls, folder: Path) -> PersistedSource:
        """The table persisted in `folder`; sizes are checked now, checksums when a shard is first read."""
        manifest = Manifest.read(folder)
        fault = find_fault(folder, manifest, checksums=False)
        if fault is not None:
            raise _damaged(folder, fault)
        return cls(folder, manifest)

    @classmethod
    def of_verified(cls, folder: Path, manifest: Manifest) -> PersistedSource:
        """The table in `folder`, whose shards were written or verified just now."""
        made = cls(folder, manifest)
        made._verified = {index: _state(made._path(index)) for index in range(made.num_partitions)}
        return made

    @property
    def num_partitions(self) -> int:
        """One for each shard."""
        return len(self.manifest.shards)

    @property
    def num_rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.manifest.shards)

    @property
    def schema(self) -> pa.Schema:
        """The columns, read from the first shard."""
        self._verify(0)
        if self.manifest.storage == "arrow":
            return open_mapped(self._path(0)).schema
        schema = tensors.unpack_schema(pq.read_schema(self._path(0))).remove_metadata()
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    def narrowed(self, names: Sequence[str]) -> PlanNode | None:
        """Columns left out are not decoded; those of Arrow files cost nothing anyway."""
        if self.manifest.storage == "arrow":
            return None
        narrow = PersistedSource(self.folder, self.manifest, columns=list(names))
        narrow._verified = self._verified
        return narrow

    def require_unchanged(self) -> None:
        """Compare shards again whose files are not those that were read; what is mapped stays as it was."""
        for index in list(self._verified) if self._mapped is None else ():
            self._verify(index)

    def describe(self) -> str:
        """One line for `explain`."""
        return f"read {self.folder} ({self.manifest.storage})"

    def identity(self) -> Any:
        """Checksums of the shards."""
        return [shard.sha256 for shard in self.manifest.shards]

    def whole(self) -> pa.Table | None:
        """All rows, mapped, where the storage is Arrow; memory is used as they are touched."""
        if self.manifest.storage == "arrow" and self._mapped is None:  # once: a new mapping has all its pages to find
            with ThreadPoolExecutor(thread_name_prefix="trek-verify") as threads:
                list(threads.map(self._verify, range(self.num_partitions)))
            self._mapped = pa.concat_tables([self._read_mapped(index) for index in range(self.num_partitions)])
        return self._mapped

    def read(self, index: int) -> Stream:
        """The rows of a shard."""
        self._verify(index)
        if self.manifest.storage == "arrow":
            yield from self._read_mapped(index).to_batches(max_chunksize=BATCH_ROWS)
            return
        rows = 0
        for batch in _read_parquet(self._path(index), self.columns):
            rows += batch.num_rows
            yield batch
        self._require_rows(index, rows)
        self._verify(index)  # it may have been replaced meanwhile

    def _path(self, index: int) -> Path:
        return self.folder / self.manifest.shards[index].file

    def _read_mapped(self, index: int) -> pa.Table:
        rows = open_mapped(self._path(index)).read_all()
        self._require_rows(index, rows.num_rows)
        return rows

    def _verify(self, index: int) -> None:
        """Compare a shard with its checksum, unless the file is the one that was."""
        shard, path = self.manifest.shards[index], self._path(index)
        if path.is_file() and self._verified.get(index) == (state := _state(path)):
            return
        fault = find_shard_fault(path, shard, checksum=True)
        if fault is not None:
            raise _damaged(self.folder, fault)
        self._verified[index] = state

    def _require_rows(self, index: int, found: int) -> None:
        shard = self.manifest.shards[index]
        if found != shard.rows:
            raise _damaged(self.folder, f"{shard.file} has {found:,} rows instead of {shard.rows:,}")


def find_fault(folder: Path, manifest: Manifest, *, checksums: bool) -> str | None:
    """What does not match the manifest; None if everything does."""
    faults = (find_shard_fault(folder / shard.file, shard, checksum=checksums) for shard in manifest.shards)
    return next((fault for fault in faults if fault is not None), None)


def find_shard_fault(file: Path, shard: Shard, *, checksum: bool) -> str | None:
    """What of a file does not match its entry in the manifest; None if everything does."""
    if not file.is_file():
        return f"{shard.file} is missing"
    if file.stat().st_size != shard.bytes:
        return f"{shard.file} has {file.stat().st_size:,} bytes instead of {shard.bytes:,}"
    if checksum and sha256_of(file) != shard.sha256:
        return f"the checksum of {shard.file} is wrong"
    return None


def sha256_of(path: Path) -> str:
    """The checksum of a shard."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(folder: Path, fault: str) -> DataUnavailable:
    return DataUnavailable(
        f"{folder} does not match its manifest: {fault}. Open it again if it was replaced, else persist it again."
    )


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=None if columns is None else list(columns)):
            yield tensors.unpack(batch)

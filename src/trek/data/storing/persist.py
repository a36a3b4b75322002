"""Tables on disk: a folder of shards, one for each partition, and a manifest that says what they are.

A folder is written under a temporary name and renamed when it is complete, so what has the final name is complete. The
manifest holds the fingerprint of the plan that made it: an equal plan finds its result again (verified by checksum),
another plan replaces it. Parquet (lz4, tensors as fixed-size binary) is small; Arrow is larger, and mapped instead of
read.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from trek.data import tensors
from trek.data.execution.base import Executor
from trek.data.execution.parts import Part
from trek.data.execution.threads import ThreadExecutor
from trek.data.plans.lowering import lowered_pieces
from trek.data.plans.plan import PlanNode, Stream
from trek.data.plans.schemas import schema_of
from trek.data.storing.persisted import Manifest, PersistedSource, Shard, Storage, find_fault, sha256_of
from trek.data.storing.table_folder import MANIFEST, replace_table, require_replaceable_folder, shard_name
from trek.errors import DataUnavailable, InputError
from trek.fingerprints import Fingerprint, digest_place
from trek.system.disk import storage_errors

_log = logging.getLogger("trek.data")
# What is held until it is written: a row group of Parquet; a batch of Arrow, for which smaller ones are put together.
_GROUP_BYTES = {"parquet": 16 << 20, "arrow": 4 << 20}


def persist(
    node: PlanNode,
    path: Path,
    executor: Executor,
    *,
    storage: Storage = "parquet",
    overwrite: bool = False,
    resume: bool = False,
    checksums: bool = True,
    on_written: Callable[[Manifest], None] = lambda manifest: None,
) -> PersistedSource:
    """Compute `node` into the folder `path`, unless the result of an equal plan is there already.

    With `resume`, shards that an earlier attempt at the same plan finished before it failed or was killed are kept.
    An existing result is verified, by size alone unless `checksums`. `on_written` is called with a new one.
    """
    require_storage(storage)
    path = path.resolve() if path.is_symlink() else path  # what the link leads to is replaced, not the link
    found = node.take_fingerprint()
    with storage_errors(path.parent, remedy="Free some space, or persist elsewhere."):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(_require_lock(path.parent / f".{path.name}.lock")):
            if not overwrite and _is_current(path, found, storage, checksums=checksums):
                return PersistedSource.of_verified(path, Manifest.read(path))
            require_replaceable_folder(path)  # before hours of computing
            _tell_unknown(found, node)
            manifest = _write(node, path, executor, found, storage, resume=resume)
            on_written(manifest)
    return PersistedSource.of_verified(path, manifest)


def count_finished(path: Path) -> int:
    """Shards of the folder `path` that an attempt which is under way, or was killed, has finished."""
    return sum(len(list(folder.glob("*.done"))) for folder in _temporary_folders(path))


def _require_lock(path: Path) -> Path:
    """Create the lock's file, or say why that is impossible: FileLock would try again for ever."""
    if not path.exists():
        path.touch()
    return path


def _tell_unknown(found: Fingerprint, node: PlanNode) -> None:
    """Say why a plan is computed every time, if it is."""
    if found.unknown:
        names = ", ".join(found.unknown[:3])
        _log.warning(
            "%s is computed every time it is persisted: %s cannot be fingerprinted. "
            "Define __trek_fingerprint__ on its class, returning what counts, or remove it.",
            node.describe(), names,
        )  # fmt: skip


def require_storage(storage: str) -> None:
    """Refuse a storage that does not exist."""
    if storage not in get_args(Storage):
        raise InputError(f"storage {storage!r} does not exist. Use 'parquet' or 'arrow'.")


def _is_current(path: Path, found: Fingerprint, storage: Storage, *, checksums: bool) -> bool:
    if not (path / MANIFEST).is_file():
        return False
    try:
        manifest = Manifest.read(path)
    except DataUnavailable:
        return False
    return manifest.is_of(found, storage) and not find_fault(path, manifest, checksums=checksums)


def _write(
    node: PlanNode, path: Path, executor: Executor, found: Fingerprint, storage: Storage, *, resume: bool
) -> Manifest:
    temporary = path.with_name(f".{path.name}.{found.outline[:16]}-{storage}.tmp")
    for left in _temporary_folders(path):  # by attempts that were killed: the lock is ours now
        if not resume or left != temporary:
            shutil.rmtree(left)
    temporary.mkdir(exist_ok=True)
    try:
        shards, schema = write_shards(node, temporary, executor, storage)
        types = {column.name: str(column.type) for column in schema}
        manifest = Manifest(found.outline, storage, types, shards, files=_file_states(found))
        manifest.write(temporary)
        replace_table(path, temporary)
    except BaseException:
        if not resume:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return manifest


def _temporary_folders(path: Path) -> list[Path]:
    """Folders in which attempts write the table `path`: not those of a table whose name only begins with this one."""
    own = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}-({'|'.join(get_args(Storage))})\.tmp")
    return [entry for entry in path.parent.iterdir() if own.fullmatch(entry.name)] if path.parent.is_dir() else []


def _file_states(found: Fingerprint) -> dict[str, list[str]]:
    return {str(file.path): [file.digest, digest_place(file.path)] for file in found.files}


def write_shards(
    node: PlanNode, folder: Path, executor: Executor, storage: Storage
) -> tuple[tuple[Shard, ...], pa.Schema]:
    """Compute `node` into files of `folder`: a shard for each partition, and the columns of all."""
    if executor.runs_here:
        parts = executor.map(partial(_write_shard, folder, storage), node.pieces(executor))
    else:
        parts = _write_fetched(node, folder, executor, storage)
    reports = [executor.get(part).to_pylist()[0] for part in parts]
    for done in folder.glob("*.done"):
        done.unlink()
    schemas = [pa.ipc.read_schema(pa.py_buffer(r["schema"])) for r in reports if r["schema"] is not None]
    schema = _same_schema(schemas) if schemas else schema_of(node)
    if not schema.names:
        raise InputError(f"{node.describe()} has no rows, so its columns are unknown. Persist a table with rows.")
    shards = []
    for report in reports:
        if report["schema"] is None:  # an empty partition, whose columns only the others know
            _write_rows(folder / report["file"], storage, schema, iter(()))
        file = folder / report["file"]
        shards.append(Shard(report["file"], report["rows"], file.stat().st_size, report["sha256"] or sha256_of(file)))
    return tuple(shards), schema


def _write_fetched(node: PlanNode, folder: Path, executor: Executor, storage: Storage) -> list[Part]:
    """Shards whose rows are computed elsewhere: a few are fetched and written while the next ones are computed.

    So that little is lost when it is killed, and no more rows are held elsewhere than are about to be written.
    """
    here = ThreadExecutor(memory_limit_bytes=executor.memory_limit_bytes)
    pieces = lowered_pieces(node, executor) or node.pieces(executor)
    numbers = list(range(len(pieces)))
    missing = [number for number in numbers if not _done_file(folder, number, storage).exists()]
    groups = [missing[at : at + executor.num_workers] for at in range(0, len(missing), executor.num_workers)]
    with ThreadPoolExecutor(1, thread_name_prefix="trek-persist") as ahead:
        computing = [ahead.submit(executor.compute, [pieces[number] for number in group]) for group in groups[:1]]
        for at, group in enumerate(groups):
            parts = computing.pop().result()
            if at + 1 < len(groups):
                computing.append(ahead.submit(executor.compute, [pieces[number] for number in groups[at + 1]]))
            here.map(_WriteNumbered(tuple(group), folder, storage), parts)
    return here.map(partial(_write_shard, folder, storage), [Part(()) for _ in numbers])


@dataclass(frozen=True)
class _WriteNumbered:
    """Writes shards that are not all of a table."""

    numbers: tuple[int, ...]
    folder: Path
    storage: Storage

    def __call__(self, index: int, batches: Stream) -> Stream:
        return _write_shard(self.folder, self.storage, self.numbers[index], batches)


def _same_schema(schemas: list[pa.Schema]) -> pa.Schema:
    for index, schema in enumerate(schemas):
        if not schema.equals(schemas[0]):
            raise InputError(
                f"partitions differ in their columns: partition {index} has\n{schema}\nand the first has\n{schemas[0]}."
            )
    return schemas[0]


_REPORT = pa.schema({"file": pa.string(), "rows": pa.int64(), "sha256": pa.string(), "schema": pa.binary()})


def _write_shard(folder: Path, storage: Storage, index: int, batches: Stream) -> Stream:
    """Write a shard and report on it; one that an earlier attempt finished is reported without being computed."""
    done = _done_file(folder, index, storage)
    name = done.stem
    if done.exists():
        yield from pa.ipc.open_stream(done.read_bytes())
        return
    first = next(batches, None)
    rows, checksum, schema = 0, None, None
    if first is not None:
        schema = first.schema.serialize().to_pybytes()
        rows = _write_rows(folder / name, storage, first.schema, _chain(first, batches))
        checksum = sha256_of(folder / name)
    report = {"file": name, "rows": rows, "sha256": checksum, "schema": schema}
    batch = pa.RecordBatch.from_pylist([report], schema=_REPORT)
    _write_report(done, batch)
    yield batch


def _done_file(folder: Path, index: int, storage: Storage) -> Path:
    """What says that a shard is complete, and what is in it."""
    return folder / f"{shard_name(index, storage)}.done"


def _write_report(done: Path, batch: pa.RecordBatch) -> None:
    half = done.with_suffix(".half")
    with pa.OSFile(str(half), "wb") as file, pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch)
    half.rename(done)


def _write_rows(path: Path, storage: Storage, schema: pa.Schema, batches: Stream) -> int:
    rows = 0
    with path.open("wb") as file:
        with _writer(file, storage, schema) as writer:
            for table in _grouped(batches, schema, group_bytes=_GROUP_BYTES[storage]):
                rows += table.num_rows
                writer.write_table(tensors.pack(table) if storage == "parquet" else table.combine_chunks())
                del table  # or it stays while the next one is gathered
        file.flush()
        os.fsync(file.fileno())
    return rows


def _writer(file: Any, storage: Storage, schema: pa.Schema) -> Any:
    if storage == "arrow":
        return pa.ipc.new_file(file, schema)
    packed = tensors.pack(schema.empty_table()).schema
    texts = [f.name for f in packed if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    return pq.ParquetWriter(
        file, packed, compression="lz4", use_dictionary=texts, write_statistics=False, write_page_checksum=True
    )


def _grouped(batches: Stream, schema: pa.Schema, *, group_bytes: int) -> Iterator[pa.Table]:
    """Batches combined into groups of a size that is efficient to read."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= group_bytes:
            yield pa.Table.from_batches(held, schema)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _chain(first: pa.RecordBatch, rest: Stream) -> Stream:
    yield first
    yield from rest

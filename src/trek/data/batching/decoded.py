"""Decoded rows: what is gathered from when a table in encoded files (Parquet, CSV, JSON lines …) is shuffled.

A row of such a file cannot be fetched alone. So the file is decoded once for all processes of the machine, into mapped
Arrow files under `$TREK_HOME/cache/decoded`: one process writes, the others wait and map what it wrote. Pages belong to
the machine, not to a process, and can be dropped and read again: neither the number of processes nor the size of the
data shows in what a process holds. Folders that were not used for a week are removed.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from trek.data.execution import current_executor
from trek.data.execution.parts import open_mapped
from trek.data.plans.plan import PlanNode
from trek.data.storing.persist import persist
from trek.data.storing.persisted import Manifest, PersistedSource
from trek.data.storing.table_folder import MANIFEST
from trek.errors import StorageError
from trek.system.home import claim_home, trek_home

if TYPE_CHECKING:
    from trek.data.table import Table

_SMALL_BYTES = 16 << 20  # copies of less than this are not worth a file
_UNUSED_S = 7 * 24 * 3600
_log = logging.getLogger("trek.data")


def decode_for_all(table: Table) -> pa.Table:
    """The rows of `table`, to be read and never written to: in memory when they are few, else mapped."""
    folder = claim_home(trek_home()) / "cache" / "decoded"
    path = folder / table.fingerprint()[:32]
    few = None if path.exists() else few_rows(table)
    if few is not None:
        return few
    _remove_unused(folder)

    def report(manifest: Manifest) -> None:
        size = sum(shard.bytes for shard in manifest.shards)
        _log.warning("for shuffling, %.0f MB were decoded once for all processes, to %s", size / 1e6, path)

    try:
        source = persist(table._node, path, current_executor(), storage="arrow", checksums=False, on_written=report)
    except StorageError as error:
        raise StorageError(
            f"shuffling needs a decoded copy of the rows: {error} Set TREK_HOME to choose where it is kept."
        ) from error
    os.utime(path / MANIFEST)
    pa.default_memory_pool().release_unused()  # what decoding used would stay with the process while it trains
    return _mapped(source)


def few_rows(table: Table) -> pa.Table | None:
    """All rows in memory, if they are few; None otherwise.

    Rows are read for this only where their number or width is not known, and only once for a plan.
    """
    node = table._node
    if node in _large or (_known_bytes(table) or 0) > _SMALL_BYTES:
        return None
    held, size = [], 0
    for batch in table:
        held.append(batch)
        size += batch.nbytes
        if size > _SMALL_BYTES:
            _large.add(node)
            return None
    return pa.Table.from_batches(held, table.schema).combine_chunks()


_large: weakref.WeakSet[PlanNode] = weakref.WeakSet()
"""Plans whose rows were read and found to be many."""


def _known_bytes(table: Table) -> int | None:
    """Bytes of all rows, where their number is known and every column has a fixed width."""
    num_rows = table._node.num_rows
    if num_rows is None:
        return None
    widths = [_width(field.type) for field in table.schema]
    return None if None in widths else num_rows * sum(width for width in widths if width is not None)


def _width(kind: pa.DataType) -> int | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        value = _width(kind.value_type)
        return None if value is None else value * math.prod(kind.shape)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # of a type whose values differ in width
        return None


def _mapped(source: PersistedSource) -> pa.Table:
    files = [source.folder / shard.file for shard in source.manifest.shards]
    return pa.concat_tables([open_mapped(file, read_only=True).read_all() for file in files])


def _remove_unused(folder: Path) -> None:
    for path in folder.glob("*"):
        if path.suffix == ".lock":
            continue
        try:  # what a killed process left half-written has no manifest
            used_at = (path / MANIFEST if (path / MANIFEST).exists() else path).stat().st_mtime
        except OSError:  # removed by another process just now
            continue
        if time.time() - used_at > _UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)

"""Computed rows: what functions, joins, sorts and the like give, evaluated once for all that is read of them.

A loop over a table needs the number of its rows, their columns and, epoch after epoch, the rows themselves. All of this
comes from one result in mapped Arrow files under `$TREK_HOME/cache/computed`. Processes of one job on one machine that
use an equal plan share it: the first computes, the others wait and map what it wrote. It is removed with its last use.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.data.execution import current_executor
from trek.data.plans.exchanges import reads_stream
from trek.data.plans.plan import PlanNode, Source
from trek.data.plans.schemas import is_schema_known
from trek.data.storing.persist import write_shards
from trek.data.storing.persisted import Manifest, PersistedSource
from trek.data.storing.used_folder import UsedFolder
from trek.fingerprints import Fingerprint, digest_text
from trek.system.disk import storage_errors
from trek.system.home import claim_home, trek_home
from trek.world import World

if TYPE_CHECKING:
    from trek.data.table import Table

_log = logging.getLogger("trek.data")


def evaluated(table: Table, columns: Sequence[str] | None, *, in_order: bool) -> Table:
    """The same rows, of `columns` alone unless None, which can be counted and read again without computing them.

    Rows of files are not computed: reading them gives the same again, with any number of expressions over them. Rows of
    a source that knows their number can be read `in_order` as they are.
    """
    if columns and is_schema_known(table._node):
        table, columns = table.select(*columns), None
    if not _is_readable(table._node, in_order=in_order):
        table = type(table)(ComputedSource.of(table._node))
    return table.select(*columns) if columns else table


class ComputedSource(PersistedSource):
    """The result of a plan, while this object or a process of the job uses it."""

    is_fixed = False

    def __init__(self, use: UsedFolder, manifest: Manifest, *, title: str) -> None:
        super().__init__(use.path, manifest)
        self._use: UsedFolder | None = use
        self._title = title

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_use": None}  # the files are there while the sender uses them

    @classmethod
    def of(cls, node: PlanNode) -> ComputedSource:
        """Compute `node`, unless another process of the job did."""
        found = node.take_fingerprint()
        _warn_of_unknown(found, node)
        folder = claim_home(trek_home()) / "cache" / "computed"

        def fill(path: Path) -> None:
            with storage_errors(path, remedy="Free some space, or set TREK_HOME to a folder on a larger disk."):
                shards, schema = write_shards(node, path, current_executor(), "arrow")
                types = {field.name: str(field.type) for field in schema}
                Manifest(found.outline, "arrow", types, shards).write(path)

        use = UsedFolder.enter(folder / f"{_job()}-{found.digest[:32]}", fill)
        return cls(use, Manifest.read(use.path), title=node.describe())

    def describe(self) -> str:
        """One line for `explain`."""
        return f"{self._title} (computed)"

    def _verify(self, index: int) -> None:
        """Written by this job, and not kept for another."""


def _is_readable(node: PlanNode, *, in_order: bool) -> bool:
    is_counted = in_order and isinstance(node, Source) and node.num_rows is not None
    return node.is_fixed or is_counted or node.whole() is not None or reads_stream(node)


def _job() -> str:
    """What processes that share computed rows have in common: those of one job, or this process alone."""
    world = World.from_env()
    meeting = f"{world.master_addr}:{world.master_port}" if world.is_distributed else f"process {os.getpid()}"
    return digest_text(world.secret or meeting)[:12]


def _warn_of_unknown(found: Fingerprint, node: PlanNode) -> None:
    if found.unknown and World.from_env().local_size > 1:
        _log.warning(
            "%s is computed by every process for itself: %s cannot be fingerprinted. Define __trek_fingerprint__ on "
            "its class, returning what counts, or persist() the table first.",
            node.describe(), ", ".join(found.unknown[:3]),
        )  # fmt: skip

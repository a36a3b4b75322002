"""Hand-over in memory: a table as one Arrow file in shared memory, which any process of this machine maps.

N training processes that open the same Handle share one copy of the rows. The process that shared owns the memory: it
is freed by `close`, with the last use of the Handle there, or when the process ends; what others have mapped by then
stays readable.
"""

from __future__ import annotations

import json
import os
import shutil
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from trek.data.execution.parts import open_mapped
from trek.data.execution.shm import is_own_folder, new_folder
from trek.data.plans.plan import Source, Stream
from trek.errors import DataUnavailable, InputError
from trek.registry import Registry
from trek.system.disk import storage_errors

if TYPE_CHECKING:
    from trek.data.table import Table

_PREFIX = "trek-handle:"


HANDLES: Registry[type[Handle]] = Registry(
    "handles",
    {"memory": "trek.data.storing.sharing:Handle", "ray": "trek.data.storing.ray_sharing:RayHandle"},
    word="kind of shared table",
    extras={"ray": "ray"},
    base="trek.data.storing.sharing:Handle",
)


@dataclass(frozen=True)
class Handle:
    """A name for rows in shared memory: small, picklable, and also text (`str(handle)`)."""

    path: Path
    num_rows: int
    nbytes: int

    def open(self) -> Table:
        """The rows, mapped; columns become tensors without a copy."""
        from trek.data.table import Table

        self._require_there()
        return Table(MappedSource(self))

    def close(self) -> None:
        """Free the memory once nobody maps it any more. Safe to call twice."""
        if is_own_folder(self.path.parent):  # the path may come from any text
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _require_there(self) -> Any:
        if not self.path.exists():
            raise DataUnavailable(
                f"the shared table {self.path} no longer exists: the process that shared it has ended or closed it."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return _PREFIX + json.dumps(self.facts())

    def facts(self) -> dict[str, Any]:
        """What `str` writes."""
        return {"path": str(self.path), "num_rows": self.num_rows, "nbytes": self.nbytes}

    def read(self) -> pa.Table:
        """All rows over the mapped memory."""
        self._require_there()
        return open_mapped(self.path).read_all()

    @classmethod
    def parse(cls, text: str) -> Handle:
        """The Handle of the text that `str` gives."""
        if not text.startswith(_PREFIX):
            raise InputError(f"{text[:60]!r} is not a handle: it does not begin with {_PREFIX!r}.")
        try:
            content = json.loads(text.removeprefix(_PREFIX))
            kind = HANDLES.load(content.pop("kind", "memory"))
            return kind(**{**content, "path": Path(content["path"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{text[:60]!r} is not a complete handle: {error}. Pass all of str(handle).") from error

    @staticmethod
    def is_handle(value: Any) -> bool:
        """Whether `value` is a Handle or the text of one."""
        return isinstance(value, Handle) or (isinstance(value, str) and value.startswith(_PREFIX))


class MappedSource(Source):
    """The rows of a Handle, mapped when first read."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._table: pa.Table | None = None

    @property
    def num_partitions(self) -> int:
        """One."""
        return 1

    @property
    def num_rows(self) -> int:
        """As the Handle says."""
        return self.handle.num_rows

    @property
    def schema(self) -> pa.Schema:
        """Read from the mapped file."""
        return self.whole().schema

    def describe(self) -> str:
        """One line for `explain`."""
        return f"shared memory, {self.handle.nbytes / 1e6:.1f} MB"

    def identity(self) -> Any:
        """The name, which no other content ever has."""
        return str(self.handle)

    def whole(self) -> pa.Table:
        """All rows over the mapped memory."""
        if self._table is None:
            self._table = self.handle.read()
        return self._table

    def read(self, index: int) -> Stream:
        """The rows in batches over the mapped memory."""
        from trek.data.sources.memory import BATCH_ROWS

        return iter(self.whole().to_batches(max_chunksize=BATCH_ROWS))

    def split(self, num_partitions: int) -> Source:
        """Ranges of the mapped rows."""
        from trek.data.sources.memory import MemorySource

        return MemorySource(self.whole(), num_partitions=num_partitions, title=self.describe())

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": self.handle, "_table": None}


def share(table: pa.Table) -> Handle:
    """Write `table` to shared memory as one batch, so that each column is one piece of memory."""
    folder = new_folder()
    with storage_errors(folder, remedy="Free shared memory, or persist(storage='arrow') instead."):
        path = folder / "table.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
    handle = Handle(path, table.num_rows, table.nbytes)
    weakref.finalize(handle, _free, folder, os.getpid())
    return handle


def _free(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits the handle, not the memory
        shutil.rmtree(folder, ignore_errors=True)

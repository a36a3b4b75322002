"""TableRows: rows of a table with the optimizer's state, as they travel, and how those of all servers are collected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from trek.ps.disk_tensors import DiskTensorWriter
from trek.ps.protocol import messages as pb
from trek.ps.protocol.tensors import Bytes, tensor_of

PORTION_ROWS = 1 << 18
"""So many rows are in one message, and in memory at a time."""


@dataclass(frozen=True)
class TableRows:
    """Rows of a table with the optimizer's state."""

    ids: torch.Tensor
    values: torch.Tensor
    slots: dict[str, torch.Tensor]
    step: int

    @classmethod
    def of(cls, rows: pb.Rows, body: Bytes) -> TableRows:
        """Those of a message."""
        slots = {one.name: tensor_of(one, body) for one in rows.slots}
        return cls(tensor_of(rows.ids, body), tensor_of(rows.values, body), slots, rows.step)

    def portions(self) -> Iterator[TableRows]:
        """A few rows at a time; a single portion without any if there are none."""
        for start in range(0, max(len(self.ids), 1), PORTION_ROWS):
            part = slice(start, start + PORTION_ROWS)
            slots = {name: block[part] for name, block in self.slots.items()}
            yield TableRows(self.ids[part], self.values[part], slots, self.step)


@dataclass
class RowCollector:
    """Portions of a table that become one, in a temporary file: a table may be larger than the memory here.

    A server without rows has no optimizer state either; the portions with most of it are the table.
    """

    _columns: dict[str, DiskTensorWriter] = field(default_factory=dict)
    _step: int = 0

    def add(self, part: TableRows) -> None:
        """Append a portion."""
        blocks = {"ids": part.ids, "values": part.values, **{f"slot {name}": part.slots[name] for name in part.slots}}
        self._step = max(self._step, part.step)
        if len(blocks) > len(self._columns):
            for writer in self._columns.values():
                writer.close()
            self._columns = {name: DiskTensorWriter() for name in blocks}
        if blocks.keys() == self._columns.keys():
            for name, block in blocks.items():
                self._columns[name].append(block)

    def finish(self) -> TableRows:
        """All rows."""
        columns = {name: writer.finish() for name, writer in self._columns.items()}
        slots = {name.removeprefix("slot "): block for name, block in columns.items() if name.startswith("slot ")}
        return TableRows(columns["ids"], columns["values"], slots, self._step)

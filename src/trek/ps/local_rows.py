"""LocalRows: the tables of a model in this process, for strategies without parameter servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from trek.ps.rules import Rule
from trek.ps.table import Table, as_tensor
from trek.ps.table_spec import TableSpec


class LocalRows:
    """Tables by name. One thread."""

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}
        self._version = 0
        self._folders: list[Path] = []

    def add(self, specs: Iterable[TableSpec]) -> None:
        """Have tables."""
        for spec in specs:
            if spec.name not in self._tables:
                self._tables[spec.name] = self._open(spec)

    def pull(self, table: str, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ids."""
        one = self._tables[table]
        return as_tensor(one.pull(ids.numpy()), one.spec.dtype).float()

    def push(self, table: str, ids: torch.Tensor, gradients: torch.Tensor, *, rule: Rule) -> None:
        """Update rows."""
        self._version += 1
        values = gradients.detach().cpu().float().contiguous().numpy()
        self._tables[table].push(ids.numpy(), values, rule=rule, version=self._version)

    def export(self, table: str) -> tuple[torch.Tensor, torch.Tensor]:
        """All ids with a row, and the rows."""
        one = self._tables[table]
        ids, values = one.export()
        return torch.from_numpy(ids), as_tensor(values, one.spec.dtype)

    def load(self, table: str, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Begin with these rows."""
        old = self._tables[table]
        self._tables[table] = self._open(old.spec)
        old.close()
        self._version = max(1, self._version)
        self._tables[table].put(ids.numpy(), rows, slots={}, rule=None, step=0, version=self._version)

    def state(self, table: str) -> dict[str, Any]:
        """The optimizer's state of a table."""
        saved = self._tables[table].state()
        return {"ids": torch.from_numpy(saved.ids), "slots": saved.slots, "step": saved.step}

    def load_state(self, table: str, state: Mapping[str, Any], *, rule: Rule) -> None:
        """Go on with the optimizer's state of a table, whose rows were loaded."""
        one = self._tables[table]
        values = as_tensor(one.pull(state["ids"].numpy()), one.spec.dtype)
        one.put(
            state["ids"].numpy(), values, slots=state["slots"], rule=rule, step=state["step"], version=self._version
        )

    def close(self) -> None:
        """Give the files back. Tables in memory can be read as long as somebody has the model."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _open(self, spec: TableSpec) -> Table:
        folder = Path(mkdtemp(prefix="trek-rows-")) if spec.memory_bytes else None
        self._folders.extend([folder] if folder is not None else [])
        return Table(spec, folder=folder)

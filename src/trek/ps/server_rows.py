"""ServerRows: the tables of a model on parameter servers, seen from a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from trek.ps.client import Client
from trek.ps.row_prefetch import RowPrefetch
from trek.ps.rules import Rule
from trek.ps.table_rows import TableRows
from trek.ps.table_spec import TableSpec


class ServerRows:
    """Rows by id, pulled when they are looked up. What changes tables as a whole, only the leader does."""

    def __init__(
        self,
        client: Client,
        *,
        is_leader: Callable[[], bool],
        prefetch: RowPrefetch,
        is_preparing: Callable[[], bool] = lambda: False,
    ) -> None:
        """Before there is a leader (`is_preparing`), rows that a model brings along go to tables without any."""
        self._client = client
        self._is_preparing = is_preparing
        self._prefetch = prefetch
        self._is_leader = is_leader
        self._dims: dict[str, int] = {}

    def add(self, specs: Iterable[TableSpec]) -> None:
        """Have tables."""
        wanted = list(specs)
        self._dims.update({spec.name: spec.dim for spec in wanted})
        self._client.add_tables(wanted)

    def pull(self, table: str, ids: torch.Tensor) -> torch.Tensor:
        """The rows of ids."""
        wanted = ids.numpy()
        rows = self._prefetch.take(table, wanted, pull=lambda old: self._client.pull_rows(table, old))
        return (self._client.pull_rows(table, wanted) if rows is None else rows).float()

    def push(self, table: str, ids: torch.Tensor, gradients: torch.Tensor, *, rule: Rule) -> None:
        """Update rows, apart from the rest of a step."""
        self._client.push_gradients(rows={table: (ids, gradients)}, rule=rule)

    def export(self, table: str) -> tuple[torch.Tensor, torch.Tensor]:
        """All ids with a row, and the rows; nothing for those who do not save."""
        if not self._is_leader():
            return torch.empty(0, dtype=torch.int64), torch.empty(0, self._dims[table])
        return self._client.export_rows(table)

    def load(self, table: str, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Begin with these rows."""
        if self._is_leader() or (self._is_preparing() and not self._has_rows(table)):
            self._client.put_rows(table, TableRows(ids, rows, {}, 0), replaces=True)

    def _has_rows(self, table: str) -> bool:
        """Whether another worker, which has built the same model, came first; it may be training already."""
        return any(server["tables"][table]["rows"] for server in self._client.stats())

    def clear(self) -> None:
        """Begin without rows."""
        for table, dim in self._dims.items():
            self.load(table, torch.empty(0, dtype=torch.int64), torch.empty(0, dim))

    def state(self, table: str) -> dict[str, Any]:
        """The optimizer's state of a table."""
        if not self._is_leader():
            return {}
        saved = self._client.export_state(table)
        return {"ids": saved.ids, "slots": saved.slots, "step": saved.step}

    def load_state(self, table: str, state: Mapping[str, Any], *, rule: Rule) -> None:
        """Go on with the optimizer's state of a table, whose rows were loaded."""
        if self._is_leader():
            ids, slots = state["ids"], dict(state["slots"])
            for part in TableRows(ids, ids, slots, state["step"]).portions():
                self._client.put_rows(table, replace(part, values=self._client.pull_rows(table, part.ids)), rule=rule)

    def close(self) -> None:
        """The servers keep the rows; whoever made the client closes it."""

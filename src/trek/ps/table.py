"""Table: the rows of one embedding on one server.

A row begins to exist with its first gradient. Reading makes none: until then its value is the initial one, computed
from its id (`initial_values`). So reading changes nothing, and the same pushes in the same order give the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from trek.errors import ConfigError, InputError
from trek.ps.arena import Arena
from trek.ps.compiled import AHEAD, compiled, prefetch
from trek.ps.distinct_ids import Floats, sum_duplicates
from trek.ps.id_index import IdIndex, Ids, Rows
from trek.ps.initial_values import fill, fill_missing, key_of
from trek.ps.row_copies import Array
from trek.ps.row_memory import MemoryRows, RowMemory, SpilledRows
from trek.ps.rules import Rule, Updater, check_change, check_rows_rule, row_slots
from trek.ps.table_spec import TableSpec

VALUES = "values"
_STORED = {"float32": np.float32, "float16": np.uint16, "bfloat16": np.uint16}
_AGE_CHECKS = 8
"""How often within `max_age` rows are looked at."""


@dataclass(frozen=True)
class TableState:
    """Rows with everything that belongs to them."""

    ids: Ids
    values: torch.Tensor
    slots: dict[str, torch.Tensor]
    touched: Array
    step: int
    waiting_ids: Ids
    """Ids that are not admitted yet."""
    waiting_counts: Array
    aged_at: int = 0
    """The version at which rows were last removed for their age."""


class Table:
    """The rows of one embedding. Not safe to use from several threads: the server has a lock for that."""

    def __init__(self, spec: TableSpec, *, folder: Path | None = None) -> None:
        """`folder` is for rows that do not fit into the memory that the spec allows."""
        self.spec = spec
        self.step = 0
        """Number of pushes."""
        self._key = key_of(spec.name, seed=spec.seed)
        self._index = IdIndex()
        self._waiting = IdIndex()
        self._counts = Arena((), np.int32)
        self._touched = Arena((), np.uint32)
        self._rows = self._open_rows(folder)
        self._rows.add_field(VALUES, spec.dim, _STORED[spec.dtype])
        self._updater: Updater | None = None
        self._aged_at = 0
        self.num_evicted = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def num_bytes(self) -> int:
        """The memory of rows and index."""
        rows = self._rows.num_in_memory(self._index.end) * self._rows.row_bytes
        return rows + 4 * self._index.end + self._index.num_bytes + self._waiting.num_bytes

    @property
    def num_spilled(self) -> int:
        """Rows that are in files."""
        return len(self) - min(len(self), self._rows.num_in_memory(len(self)))

    def pull(self, ids: Ids) -> Array:
        """The values of `ids`, as they are stored."""
        found = self._index.find(ids)
        block = self._rows.gather(VALUES, found)
        if self.spec.dtype == "float32":
            fill_missing(self.spec.initial, block, ids, found, key=self._key)
        elif (found < 0).any():
            missing = np.flatnonzero(found < 0)
            block[missing] = self._stored(self._initial(ids[missing]))
        return block

    def check(self, ids: Ids, values: Array) -> None:
        """Raise `InputError` unless these are ids and a row of the table's width for each."""
        if ids.dtype != np.int64 or ids.ndim != 1 or values.shape != (len(ids), self.spec.dim):
            raise InputError(
                f"table {self.spec.name!r} takes a row of {self.spec.dim} numbers for each int64 id, got {ids.dtype} "
                f"of shape {ids.shape} and rows of shape {values.shape}."
            )

    def check_rule(self, rule: Rule) -> None:
        """Raise `InputError` unless rows can be updated by `rule`; changes nothing."""
        check_rows_rule(rule)
        if self.rule is not None:
            check_change(self.rule, rule)

    def check_slots(self, num_rows: int, slots: Mapping[str, torch.Tensor], *, rule: Rule | None) -> None:
        """Raise `InputError` unless these are an optimizer's state of so many rows, by `rule` or by the table's."""
        rule = rule or self.rule
        known = row_slots(rule) if rule is not None else {}
        for name, block in slots.items():
            if name not in known:
                raise InputError(
                    f"rows of table {self.spec.name!r} have no state {name!r} of an optimizer. They have: "
                    f"{', '.join(known) or 'none'}."
                )
            if block.shape != (num_rows, self.spec.dim) or block.dtype != torch.float32:
                raise InputError(
                    f"the state {name!r} of table {self.spec.name!r} must be float32 of shape "
                    f"{(num_rows, self.spec.dim)}, got {block.dtype} of shape {tuple(block.shape)}."
                )

    def follow(self, rule: Rule) -> None:
        """Update by `rule` from now on; InputError if that is not possible."""
        self._updater_for(rule)

    @property
    def rule(self) -> Rule | None:
        """The rule of the last push."""
        return self._updater.rule if self._updater else None

    def push(self, ids: Ids, gradients: Floats, *, rule: Rule, version: int, scale_lr: float = 1.0) -> None:
        """Update the rows of `ids`; gradients of the same id are summed first. `version` is the server's new one."""
        updater = self._updater_for(rule)
        self.step += 1
        if self.spec.admit_after > 1:
            ids, gradients = sum_duplicates(ids, gradients)
            admitted = self._admit(ids)
            ids, gradients = ids[admitted], gradients[admitted]
        rows = self._rows_of(ids)
        if _stamp(self._touched.array, rows, version):
            ids, gradients = sum_duplicates(ids, gradients)
            rows = self._index.find(ids)
        self._update(updater, rows, gradients, scale_lr=scale_lr)
        self._evict(version)

    def put(
        self,
        ids: Ids,
        values: torch.Tensor,
        *,
        slots: Mapping[str, torch.Tensor],
        rule: Rule | None,
        step: int,
        version: int,
    ) -> None:
        """Set rows and their optimizer state, as from another training."""
        nothing = np.empty(0, np.int64)
        touched = np.full(len(ids), version, np.uint32)
        self.load(TableState(ids, values, dict(slots), touched, step, nothing, nothing), rule=rule)

    def export(self, since: int = 0) -> tuple[Ids, Array]:
        """The ids and values of rows that were pushed after version `since`."""
        ids, rows = self._index.items()
        if since:
            changed = self._touched.array[rows] > since
            ids, rows = ids[changed], rows[changed]
        return ids, self._rows.gather(VALUES, rows)

    def state(self) -> TableState:
        """A copy of everything."""
        waiting, counted = self._waiting.items()
        return replace(
            self._copied(*self._index.items()),
            waiting_ids=waiting,
            waiting_counts=self._counts.array[counted],
            aged_at=self._aged_at,
        )

    def portion(self, *, since: int, start: int, max_rows: int) -> tuple[TableState, int]:
        """A copy of up to `max_rows` rows (0 for all) that were pushed after version `since`, without what waits.

        Ids are in the order of unsigned numbers. `start` is the first one; that of the next portion is returned, or 0
        after the last. So a row that is there all the time is in one portion, whatever changes in between.
        """
        ids, rows = self._index.entries()
        numbers = ids.view(np.uint64)
        chosen = np.flatnonzero(numbers >= np.int64(start).view(np.uint64))
        if since > 0:
            chosen = chosen[self._touched.array[rows[chosen]] > since]
        following = 0
        if max_rows and len(chosen) > max_rows:
            order = np.argpartition(numbers[chosen], max_rows)
            following = int(ids[chosen[order[max_rows]]])
            chosen = chosen[order[:max_rows]]
        chosen = chosen[np.argsort(numbers[chosen])]
        return self._copied(ids[chosen], rows[chosen]), following

    def _copied(self, ids: Ids, rows: Rows) -> TableState:
        slots = self._updater.slots if self._updater else {}
        return TableState(
            ids=ids,
            values=as_tensor(self._rows.gather(VALUES, rows), self.spec.dtype),
            slots={name: torch.from_numpy(self._rows.gather(name, rows)) for name in slots},
            touched=self._touched.array[rows],
            step=self.step,
            waiting_ids=np.empty(0, np.int64),
            waiting_counts=self._counts.array[:0],
        )

    def load(self, state: TableState, *, rule: Rule | None) -> None:
        """Take the rows of a `state`, of this table on any server, into this one."""
        self.step = max(self.step, state.step)
        self._aged_at = max(self._aged_at, state.aged_at)
        if rule is not None:
            self._updater_for(rule)
        rows = self._rows_of(state.ids)
        self._touched.array[rows] = state.touched
        self._rows.scatter(VALUES, rows, self._stored(state.values))
        for name, block in state.slots.items():
            self._rows.scatter(name, rows, block.numpy())
        counted, _ = self._waiting.add(state.waiting_ids)
        self._counts.reserve(self._waiting.end)
        self._counts.array[counted] = state.waiting_counts

    def close(self) -> None:
        """Give the memory and the files back."""
        self._rows.close()

    # -- internals

    def _open_rows(self, folder: Path | None) -> RowMemory:
        if self.spec.memory_bytes is None:
            return MemoryRows()
        if folder is None:
            raise ConfigError(f"table {self.spec.name!r} has memory_bytes, but its server has no folder for the rest.")
        folder.mkdir(parents=True, exist_ok=True)
        return SpilledRows(max_bytes=self.spec.memory_bytes, folder=folder)

    def _updater_for(self, rule: Rule) -> Updater:
        self.check_rule(rule)
        if self._updater is None:
            self._updater = Updater(rule, torch.empty(0))
            for name in self._updater.slots:
                self._rows.add_field(name, self.spec.dim, np.float32)
            self._set_slots(self._index.items()[1])
        self._updater.follow(rule)
        return self._updater

    def _rows_of(self, ids: Ids) -> Rows:
        """The rows of `ids`, those made now with their initial values."""
        rows, num_new = self._index.add(ids)
        self._touched.reserve(self._index.end)
        self._rows.prepare(rows, end=self._index.end, touched=self._touched.array)
        if num_new:
            is_new = self._touched.array[rows] == 0
            new = rows[is_new]
            self._rows.scatter(VALUES, new, self._stored(self._initial(ids[is_new])))
            self._set_slots(new)
        return rows

    def _set_slots(self, rows: Rows) -> None:
        for name, value in (self._updater.slots if self._updater else {}).items():
            self._rows.scatter(name, rows, np.full((len(rows), self.spec.dim), value, np.float32))

    def _update(self, updater: Updater, rows: Rows, gradients: Floats, *, scale_lr: float) -> None:
        whole = self._rows.whole(VALUES) if self.spec.dtype == "float32" else None
        if whole is not None and updater.add_rows(whole, rows, gradients, scale_lr=scale_lr):
            return
        stored = self._rows.gather(VALUES, rows)
        values = as_tensor(stored, self.spec.dtype).float()
        slots = {name: self._rows.gather(name, rows) for name in updater.slots}
        updater.update_rows(
            values,
            torch.from_numpy(gradients),
            slots={name: torch.from_numpy(block) for name, block in slots.items()},
            step=self.step,
            scale_lr=scale_lr,
        )
        self._rows.scatter(VALUES, rows, self._stored(values))
        for name, block in slots.items():
            self._rows.scatter(name, rows, block)

    def _admit(self, ids: Ids) -> Array:
        """Which of the distinct `ids` have a row, or get one now that they were seen often enough."""
        is_known = self._index.find(ids) >= 0
        unknown = ids[~is_known]
        rows, _ = self._waiting.add(unknown)
        self._counts.reserve(self._waiting.end)
        self._counts.array[rows] += 1
        is_due = self._counts.array[rows] >= self.spec.admit_after
        self._counts.array[rows[is_due]] = 0
        self._waiting.remove(unknown[is_due])
        is_known[np.flatnonzero(~is_known)[is_due]] = True
        return is_known

    def _evict(self, version: int) -> None:
        max_age, max_rows = self.spec.max_age, self.spec.max_rows
        if max_age is not None and version - self._aged_at >= max(1, max_age // _AGE_CHECKS):
            self._aged_at = version
            ids, rows = self._index.items()
            self._remove(ids, rows, version - self._touched.array[rows].astype(np.int64) > max_age)
        if max_rows is not None and len(self) > max_rows:
            ids, rows = self._index.items()
            order = np.lexsort((ids, self._touched.array[rows]))  # by id, since rows have other numbers after a restart
            is_oldest = np.zeros(len(ids), bool)
            is_oldest[order[: len(ids) - max_rows]] = True
            self._remove(ids, rows, is_oldest)

    def _remove(self, ids: Ids, rows: Rows, chosen: Array) -> None:
        self._index.remove(ids[chosen])
        self._rows.forget(rows[chosen])
        self._touched.array[rows[chosen]] = 0
        self.num_evicted += int(chosen.sum())

    def _initial(self, ids: Ids) -> torch.Tensor:
        block = np.empty((len(ids), self.spec.dim), np.float32)
        fill(self.spec.initial, block, ids, key=self._key)
        return torch.from_numpy(block)

    def _stored(self, values: torch.Tensor) -> Array:
        if self.spec.dtype == "float32":
            return values.float().numpy()
        return values.to(getattr(torch, self.spec.dtype)).view(torch.uint16).numpy()


def as_tensor(stored: Array, dtype: str) -> torch.Tensor:
    """Stored values as a tensor of their type, without a copy."""
    tensor = torch.from_numpy(stored)
    return tensor if dtype == "float32" else tensor.view(getattr(torch, dtype))


@compiled
def _stamp(touched: Array, rows: Rows, version: int) -> bool:
    """Note that `rows` were used by `version`; whether one of them occurs twice."""
    repeated = False
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            prefetch(touched, rows[i + AHEAD])
        if touched[rows[i]] == version:
            repeated = True
        touched[rows[i]] = version
    return repeated

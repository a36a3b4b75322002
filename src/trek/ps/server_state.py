"""ServerState: what one parameter server knows, and how pushes change it. No I/O, no threads, no clock.

The same calls in the same order give the same state, so a journal of the calls is all that has to be kept.
A push is applied once: every source numbers its pushes from 1, and a number that was applied before is not applied
again (`push_ledger`). A push that is rejected is repeated with new gradients under the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from trek.errors import InputError
from trek.ps.dense import DenseParameter
from trek.ps.distinct_ids import Floats, sum_duplicates
from trek.ps.id_index import Ids
from trek.ps.push_ledger import PushId, PushLedger
from trek.ps.rules import Rule, check_change
from trek.ps.table import Table
from trek.ps.table_spec import TableSpec

DenseKey = tuple[str, int]
"""The name of a parameter, and the first element of the part that is here."""
DenseValue = tuple[torch.Tensor, Mapping[str, torch.Tensor], Rule | None]
"""A value, the state of its optimizer, and the rule that the state belongs to."""
Verdict = Literal["apply", "repeated", "rejected"]


@dataclass(frozen=True)
class Mode:
    """When pushes are applied."""

    grads_to_wait: int = 1
    """Pushes that make one step, by their mean; 1 applies every push at once."""
    max_staleness: int = -1
    """A push whose gradients are older, in versions, is rejected; negative: never."""
    scale_lr_by_staleness: bool = False
    """Divide the learning rate of a push by its age in versions."""

    def __post_init__(self) -> None:
        if self.grads_to_wait < 1:
            raise InputError(f"grads_to_wait must be at least 1, got {self.grads_to_wait}.")


@dataclass(frozen=True)
class RowGradients:
    """Gradients of rows of one table."""

    table: str
    ids: Ids
    values: Floats
    rule: Rule


@dataclass(frozen=True)
class Push:
    """The gradients of one step of one worker, for one server."""

    source: str
    sequence: int
    version: int
    dense: Sequence[tuple[DenseKey, torch.Tensor, Rule]] = ()
    rows: Sequence[RowGradients] = ()
    digest: bytes = b""

    @property
    def id(self) -> PushId:
        """Which push of its source this is."""
        return PushId(self.sequence, self.digest)

    def copy(self) -> Push:
        """The same with gradients of its own, for a push that outlives the request it came with."""
        dense = [(key, gradient.clone(), rule) for key, gradient, rule in self.dense]
        rows = [RowGradients(one.table, one.ids.copy(), one.values.copy(), one.rule) for one in self.rows]
        return replace(self, dense=dense, rows=rows)


@dataclass
class ServerState:
    """Parameters, tables, versions, and which pushes were applied."""

    folder: Path | None = None
    """For rows that do not fit into memory."""
    mode: Mode = field(default_factory=Mode)
    is_initialized: bool = False
    version: int = 0
    dense: dict[DenseKey, DenseParameter] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    ledger: PushLedger = field(default_factory=PushLedger)
    pending: list[Push] = field(default_factory=list)
    """Pushes that wait for the others of their step."""
    staleness: Counter[int] = field(default_factory=Counter)
    """How many pushes had which age."""
    num_rejected: int = 0
    moved_to: tuple[str, ...] = ()
    """The servers that have the parameters now, if these are not here any more."""
    _num_opened: int = 0
    """Tables so far: each has a folder of its own, also if it replaces another one."""

    @property
    def next_version(self) -> int:
        """The version of what changes between two pushes: those who have the present version do not have it."""
        return self.version + 1

    def initialize(self, dense: Mapping[DenseKey, torch.Tensor], *, mode: Mode) -> None:
        """Take the parameters that are not known yet; the mode of the first model counts."""
        is_later = self.is_initialized
        if not self.is_initialized:
            self.mode, self.is_initialized = mode, True
        for key, value in dense.items():
            if key not in self.dense:
                self.dense[key] = DenseParameter(value, version=self.next_version if is_later else self.version)

    def replacements(self, given: Mapping[DenseKey, DenseValue]) -> dict[DenseKey, DenseParameter]:
        """Parameters to put in the place of those that are here; InputError if one does not fit. Changes nothing."""
        return {key: self._replacement(key, *one) for key, one in given.items()}

    def _replacement(
        self, key: DenseKey, value: torch.Tensor, slots: Mapping[str, torch.Tensor], rule: Rule | None
    ) -> DenseParameter:
        have = self.dense.get(key)
        if have is None or have.value.shape != value.shape or have.value.dtype != value.dtype:
            raise InputError(
                f"there is no parameter {key[0]!r} of {value.dtype} and shape {tuple(value.shape)} on this server."
            )
        made = DenseParameter(value, version=self.next_version)
        if rule is not None:
            made.load(slots, rule=rule)
        for waiting in (one for push in self.pending for name, _, one in push.dense if name == key):
            made.check(waiting)
            if made.rule is None:
                made.follow(waiting)
        return made

    def add_table(self, spec: TableSpec) -> None:
        """Have a table; one that is there must be the same."""
        self.tables.update(self.open_tables([spec]))

    def open_tables(self, specs: Iterable[TableSpec]) -> dict[str, Table]:
        """Those tables that are not here yet; InputError if one is here with other settings. Changes nothing here."""
        wanted: dict[str, TableSpec] = {}
        for spec in specs:
            have = self.tables[spec.name].spec if spec.name in self.tables else wanted.setdefault(spec.name, spec)
            if have != spec:
                raise InputError(
                    f"table {spec.name!r} exists with other settings. It has {have!r}, and was asked for as {spec!r}."
                )
        with ExitStack() as opened:
            made = {name: opened.enter_context(closing(self.open_table(spec))) for name, spec in wanted.items()}
            opened.pop_all()
            return made

    def open_table(self, spec: TableSpec) -> Table:
        """A table without rows, in a folder of its own."""
        self._num_opened += 1
        return Table(spec, folder=None if self.folder is None else self.folder / f"table-{self._num_opened}")

    def replace_table(self, table: Table) -> None:
        """Have `table` instead of the one of its name."""
        self.tables[table.spec.name].close()
        self.tables[table.spec.name] = table

    def check_rows_rule(self, table: Table, rule: Rule) -> None:
        """Raise `InputError` unless the rows of `table`, and those that wait to be updated, can follow `rule`."""
        table.check_rule(rule)
        for one in (rows for push in self.pending for rows in push.rows if rows.table == table.spec.name):
            check_change(one.rule, rule)

    def table(self, name: str) -> Table:
        """The table called `name`."""
        if name not in self.tables:
            raise InputError(f"there is no table {name!r}. There are: {', '.join(sorted(self.tables)) or 'none'}.")
        return self.tables[name]

    def changed_since(self, version: int) -> dict[DenseKey, DenseParameter]:
        """The dense parameters that changed after `version`; all, for one that this server has not or no longer."""
        is_known = 0 <= version <= self.version
        return {key: one for key, one in self.dense.items() if not is_known or one.changed_at > version}

    def judge(self, push: Push) -> Verdict:
        """What is to be done with a push; InputError if it does not fit. Changes nothing."""
        if self.ledger.has(push.source, push.id):
            return "repeated"
        self._check(push)
        if 0 <= self.mode.max_staleness < self.version - push.version:
            return "rejected"
        return "apply"

    def apply(self, push: Push) -> None:
        """Apply a push that was judged so, or keep it until its step is complete."""
        for key, _, rule in push.dense:
            self.dense[key].follow(rule)
        for rows in push.rows:
            self.tables[rows.table].follow(rows.rule)
        self.ledger.note(push.source, push.id)
        stale = max(0, self.version - push.version)
        self.staleness[stale] += 1
        scale = 1 / max(1, stale) if self.mode.scale_lr_by_staleness else 1.0
        if self.mode.grads_to_wait == 1:
            self._update(push, scale_lr=scale)
            return
        self.pending.append(push.copy())
        if len(self.pending) == self.mode.grads_to_wait:
            together, self.pending = self.pending, []
            self._update(mean_of(together), scale_lr=scale)

    def flush(self) -> None:
        """Apply the pushes that wait for others of their step."""
        if self.pending:
            together, self.pending = self.pending, []
            self._update(mean_of(together), scale_lr=1.0)

    def close(self) -> None:
        """Give memory and files back."""
        for table in self.tables.values():
            table.close()

    def _check(self, push: Push) -> None:
        """InputError unless everything in a push has its place and its rule."""
        named = Counter([key for key, _, _ in push.dense]) + Counter([(rows.table, -1) for rows in push.rows])
        if twice := [name for (name, _), count in named.items() if count > 1]:
            raise InputError(f"the push has gradients of {twice[0]!r} twice. Add them up, or concatenate their rows.")
        for key, gradient, rule in push.dense:
            if key not in self.dense:
                raise InputError(f"there is no parameter {key[0]!r} (from element {key[1]}) on this server.")
            value = self.dense[key].value
            if gradient.numel() != value.numel() or gradient.dtype != value.dtype:
                raise InputError(
                    f"the gradient of {key[0]!r} must have {value.numel()} numbers of {value.dtype}, "
                    f"got {gradient.numel()} of {gradient.dtype}."
                )
            self.dense[key].check(rule)
        for rows in push.rows:
            self.table(rows.table).check(rows.ids, rows.values)
            self.check_rows_rule(self.tables[rows.table], rows.rule)

    def _update(self, push: Push, *, scale_lr: float) -> None:
        self.version += 1
        for key, gradient, _ in push.dense:
            self.dense[key].update(gradient, version=self.version, scale_lr=scale_lr)
        for rows in push.rows:
            table = self.tables[rows.table]
            table.push(rows.ids, rows.values, rule=rows.rule, version=self.version, scale_lr=scale_lr)


def mean_of(pushes: Sequence[Push]) -> Push:
    """One push with the mean of the gradients of several, added in the order of their sources' names."""
    ordered = sorted(pushes, key=lambda push: (push.source, push.sequence))
    count = len(ordered)
    sums: dict[DenseKey, tuple[torch.Tensor, Rule]] = {}
    parts: dict[str, list[RowGradients]] = {}
    for push in ordered:
        for key, gradient, rule in push.dense:
            sums[key] = (sums[key][0] + gradient if key in sums else gradient, rule)
        for rows in push.rows:
            parts.setdefault(rows.table, []).append(rows)
    return Push(
        source="",
        sequence=0,
        version=ordered[0].version,
        dense=[(key, total / count, rule) for key, (total, rule) in sums.items()],
        rows=[_mean_rows(several, count) for several in parts.values()],
    )


def _mean_rows(several: Sequence[RowGradients], count: int) -> RowGradients:
    ids: Any = np.concatenate([rows.ids for rows in several])
    values: Any = np.concatenate([rows.values for rows in several])
    ids, values = sum_duplicates(ids, values)
    return RowGradients(several[0].table, ids, values / np.float32(count), several[-1].rule)

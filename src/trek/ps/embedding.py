"""Embedding and EmbeddingBag whose rows live in tables: on parameter servers, or in this process.

The modules are the same everywhere; the strategy binds them to where their rows are. In the model they have a
parameter `weight` without rows: it stands for the table among the parameters, so that the optimizer's group it is in
sets the rule of the table, and `requires_grad_(False)` freezes the table.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from torch._compile import _disable_dynamo

from trek.errors import ConfigError, InputError
from trek.ps.table_spec import Initial, TableSpec
from trek.registry import takes_fields_of

Given = ParamSpec("Given")
Result = TypeVar("Result")
IDS, ROWS = "ids", "rows"
"""The names in a state dict: `<module>.ids` and `<module>.rows`."""


class RowSource(Protocol):
    """Where the rows of tables are."""

    def pull(self, table: str, ids: torch.Tensor) -> torch.Tensor:
        """The rows of distinct ids, as float32 on the CPU."""

    def export(self, table: str) -> tuple[torch.Tensor, torch.Tensor]:
        """All ids with a row, and the rows."""

    def load(self, table: str, ids: torch.Tensor, rows: torch.Tensor) -> None:
        """Set rows."""


def _untraced(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """`function`, which torch.compile calls and does not trace. Does not load torch's compiler, which takes seconds."""
    called_by_compiled: Callable[Given, Result] = _disable_dynamo(function)  # loads it when it is called first

    @wraps(function)
    def call(*args: Given.args, **named: Given.kwargs) -> Result:
        return (called_by_compiled if "torch._dynamo" in sys.modules else function)(*args, **named)

    return call


class RowModule(nn.Module):
    """What looks rows up in a table."""

    @takes_fields_of(TableSpec)
    def __init__(
        self,
        name: str,
        dim: int,
        *,
        initial: Initial | Literal["uniform", "normal", "zeros"] = "uniform",
        **table: Any,
    ) -> None:
        """See `trek.ps.TableSpec` for the settings of the table."""
        super().__init__()
        if isinstance(initial, str):
            if initial not in ("uniform", "normal", "zeros"):
                raise ConfigError(
                    f"initial must be 'uniform', 'normal', 'zeros' or a trek.ps.Initial, got {initial!r}."
                )
            initial = Initial(kind=initial)
        self.spec = TableSpec.of(name=name, dim=dim, initial=initial, **table)
        self.weight = nn.Parameter(torch.empty(0, dim))
        self._source: RowSource | None = None
        self._is_trained = False
        """Whether somebody applies the gradients of its rows."""
        self._used: list[tuple[torch.Tensor, torch.Tensor]] = []

    def bind(self, source: RowSource) -> None:
        """Look rows up in `source` from now on; rows that were loaded before move there."""
        before, self._source = self._source, source
        if before is not None and before is not source and not self._is_trained:
            ids, rows = before.export(self.spec.name)
            if len(ids):
                source.load(self.spec.name, ids, rows)
        self._is_trained = True

    @property
    def source(self) -> RowSource:
        """Where the rows are; in this module itself, for one that is not trained."""
        if self._source is None:
            from trek.ps.local_rows import LocalRows

            own = LocalRows()
            own.add([self.spec])
            self._source = own
        return self._source

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A module that looks up the same rows, as they are trained further, until it loads rows; it is not trained."""
        own: dict[str, Any] = {"_source": self._source, "_is_trained": False, "_used": []}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        rest = {name: value for name, value in vars(self).items() if name not in own}
        vars(copied).update(copy.deepcopy(rest, memo), **own)
        return copied

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The ids that were used since the last step, and the gradients of their rows; an id may occur twice."""
        used = [(ids, rows.grad) for ids, rows in self._used if rows.grad is not None]
        if not used:
            return None
        if len(used) == 1:
            return used[0]
        return torch.cat([ids for ids, _ in used]), torch.cat([gradient for _, gradient in used])

    def used_rows(self) -> list[torch.Tensor]:
        """The rows that were looked up since the last step, which have the gradients."""
        return [rows for _, rows in self._used]

    def replace_gradients(self, ids: torch.Tensor, gradients: torch.Tensor) -> None:
        """Have these instead, as after an exchange with other ranks."""
        rows = torch.empty_like(gradients).requires_grad_()
        rows.grad = gradients
        self._used = [(ids, rows)]

    def clear(self) -> None:
        """Forget what was used."""
        self._used.clear()

    @_untraced
    def look_up(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The distinct rows of `ids`, and where each id is among them; rows of a frozen table have no gradients."""
        from trek.ps.distinct_ids import distinct

        if ids.dtype not in (torch.int64, torch.int32):
            raise InputError(f"the ids of table {self.spec.name!r} must be int64, got {ids.dtype}.")
        has_gradients = torch.is_grad_enabled() and self.weight.requires_grad
        if has_gradients and self.training and not self._is_trained:
            raise InputError(
                f"the table {self.spec.name!r} is not connected to a training. Train the model with trek.fit, or pass "
                "it to Traveler.add_model; to evaluate it, call eval()."
            )
        unique, position = distinct(ids.detach().reshape(-1).to("cpu", torch.int64).contiguous().numpy())
        known = torch.from_numpy(unique)
        rows = self.source.pull(self.spec.name, known).to(self.weight.device)
        if has_gradients and self._is_trained:
            rows.requires_grad_()
            self._used.append((known, rows))
        return rows, torch.from_numpy(position).to(ids.device).view(ids.shape)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self._source is None:
            ids, rows = torch.empty(0, dtype=torch.int64), torch.empty(0, self.spec.dim)
        else:
            ids, rows = self._source.export(self.spec.name)
        destination[prefix + IDS], destination[prefix + ROWS] = ids, rows

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        del local_metadata, strict, unexpected_keys, error_msgs
        names = [prefix + IDS, prefix + ROWS]
        absent = [name for name in names if name not in state_dict]
        missing_keys.extend(absent)
        if not absent:
            if not self._is_trained:
                self._source = None  # a copy of this module may look rows up there
            self.source.load(self.spec.name, *(state_dict[name] for name in names))


class Embedding(RowModule):
    """A row for any int64 id, made on first sight: `trek.nn.Embedding("user", dim=16)`."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of `ids`, with a last dimension of `dim`."""
        rows, position = self.look_up(ids)
        return F.embedding(position, rows.to(self.weight.dtype))

    def extra_repr(self) -> str:
        """The table."""
        return f"{self.spec.name!r}, dim={self.spec.dim}"


class EmbeddingBag(RowModule):
    """Rows of bags of ids, pooled: `trek.nn.EmbeddingBag("tags", dim=16, mode="mean")`."""

    @takes_fields_of(RowModule)
    def __init__(self, name: str, dim: int, *, mode: Literal["sum", "mean", "max"] = "mean", **table: Any) -> None:
        super().__init__(name, dim, **table)
        if mode not in ("sum", "mean", "max"):
            raise ConfigError(f"the mode of a bag must be 'sum', 'mean' or 'max', got {mode!r}.")
        self.mode = mode

    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One row for each bag: of a matrix its rows, of a jagged nested tensor its parts, otherwise by `offsets`."""
        if ids.is_nested:
            ids, offsets = ids.values(), ids.offsets()[:-1]  # type: ignore[attr-defined]
        rows, position = self.look_up(ids)
        rows = rows.to(self.weight.dtype)
        if not len(rows):  # torch does not take a table without rows
            rows = rows.new_zeros(1, self.spec.dim)
        return F.embedding_bag(position, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights)

    def extra_repr(self) -> str:
        """The table."""
        return f"{self.spec.name!r}, dim={self.spec.dim}, mode={self.mode!r}"


def row_modules(model: nn.Module) -> Iterator[RowModule]:
    """The modules of a model whose rows live in tables."""
    return (module for module in model.modules() if isinstance(module, RowModule))


def tables_of(modules: Iterable[RowModule]) -> dict[str, TableSpec]:
    """The tables that modules look up; those that share a name must mean the same table."""
    specs: dict[str, TableSpec] = {}
    for module in modules:
        if specs.setdefault(module.spec.name, module.spec) != module.spec:
            raise ConfigError(f"two modules use the table {module.spec.name!r} with different settings.")
    return specs

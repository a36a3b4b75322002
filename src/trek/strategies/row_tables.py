"""RowTables: the modules of a run whose rows live in tables (`trek.nn.Embedding`), seen from a strategy.

It knows which module belongs to which optimizer, and by which rule its rows are updated; where the rows are is the
business of its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from trek.ps.embedding import RowModule, RowSource, tables_of
from trek.ps.table_spec import TableSpec

if TYPE_CHECKING:
    from trek.ps.rules import Rule


class RowStore(RowSource, Protocol):
    """Where the rows of tables are, and how they are updated and saved."""

    def add(self, specs: Iterable[TableSpec]) -> None:
        """Have tables."""

    def push(self, table: str, ids: torch.Tensor, gradients: torch.Tensor, *, rule: Rule) -> None:
        """Update rows."""

    def state(self, table: str) -> dict[str, Any]:
        """The optimizer's state of a table."""

    def load_state(self, table: str, state: Mapping[str, Any], *, rule: Rule) -> None:
        """Go on with the optimizer's state of a table, whose rows were loaded."""

    def close(self) -> None:
        """Give back what the tables hold."""


class RowTables:
    """The row modules of the models of a run, bound to a source of rows."""

    def __init__(self, source: RowStore) -> None:
        self.source = source
        self._modules: list[RowModule] = []

    def add(self, modules: Iterable[RowModule]) -> None:
        """Bind modules to the source."""
        self._modules.extend(modules)
        self.source.add(tables_of(self._modules).values())
        for module in self._modules:
            module.bind(self.source)

    @property
    def specs(self) -> dict[str, TableSpec]:
        """The tables by name."""
        return tables_of(self._modules)

    def modules_of(self, parameters: Iterable[nn.Parameter]) -> list[RowModule]:
        """The modules whose tables these parameters stand for."""
        wanted = {id(parameter) for parameter in parameters}
        return [module for module in self._modules if id(module.weight) in wanted]

    def rules(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Rule, list[RowModule]]]:
        """The tables of an optimizer with the rule of their group, and the modules that look them up."""
        from trek.ps.rules import Rule

        for group in optimizer.param_groups:
            tables: dict[str, list[RowModule]] = {}
            for module in self.modules_of(group["params"]):
                tables.setdefault(module.spec.name, []).append(module)
            for name, modules in tables.items():
                yield name, Rule.of(optimizer, group), modules

    def gradients(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, Rule]]:
        """The tables of an optimizer that have gradients: name, ids, gradients, rule. Clears them."""
        for name, rule, modules in self.rules(optimizer):
            found = [gradients for module in modules if (gradients := module.gradients()) is not None]
            for module in modules:
                module.clear()
            if found:
                yield name, torch.cat([ids for ids, _ in found]), torch.cat([values for _, values in found]), rule

    def drop(self) -> None:
        """Forget all gradients since the last step."""
        for module in self._modules:
            module.clear()

    def held(self, parameters: Sequence[nn.Parameter]) -> dict[int, list[torch.Tensor]]:
        """Ids and gradients of rows since the last step, by the index of the parameter that stands for their table."""
        found = ((index, module.gradients()) for index, module in self._by_index(parameters))
        return {index: list(gradients) for index, gradients in found if gradients is not None}

    def load_held(
        self, parameters: Sequence[nn.Parameter], held: Iterable[Mapping[int, Sequence[torch.Tensor]]]
    ) -> None:
        """Go on with the gradients that were `held`, of one rank or of several."""
        several = list(held)
        for index, module in self._by_index(parameters):
            own = [one[index] for one in several if index in one]
            if own:
                ids, gradients = (torch.cat(parts) for parts in zip(*own, strict=True))
                module.replace_gradients(ids, gradients.to(module.weight.device))

    def _by_index(self, parameters: Sequence[nn.Parameter]) -> list[tuple[int, RowModule]]:
        places = {id(parameter): index for index, parameter in enumerate(parameters)}
        return [(places[id(module.weight)], module) for module in self.modules_of(parameters)]

    def used_rows(self, parameters: Iterable[nn.Parameter]) -> list[torch.Tensor]:
        """The rows with gradients of the tables that these parameters stand for."""
        return [rows for module in self.modules_of(parameters) for rows in module.used_rows()]

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the rows of the tables of an optimizer."""
        for name, ids, gradients, rule in self.gradients(optimizer):
            self.source.push(name, ids, gradients, rule=rule)

    def close(self) -> None:
        """Give back what the tables hold."""
        self.source.close()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of the tables of an optimizer, by name."""
        return {name: self.source.state(name) for name, _, _ in self.rules(optimizer)}

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Load the result of `optimizer_state`."""
        for name, rule, _ in self.rules(optimizer):
            if name in state:
                self.source.load_state(name, state[name], rule=rule)

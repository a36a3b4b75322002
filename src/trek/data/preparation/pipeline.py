"""Preparation: which layer makes which feature of which columns; fitted in one pass, applied anywhere, saved as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from trek.data.preparation.base import Layer, stack_columns
from trek.errors import InputError

if TYPE_CHECKING:
    from trek.data.table import Table


class Preparation(nn.Module):
    """A dict of columns in, a dict of features out.

        prepare = Preparation({"numbers": (Normalise(), ["age", "hours"]), "job": (Lookup(), "job"), "label": "label"})
        ready = table.map(prepare.fit(table))

    A feature that is a column's name alone passes through. The columns may be arrays (from a Table) or tensors.
    """

    def __init__(self, features: Mapping[str, tuple[Layer, str | Sequence[str]] | str]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict()
        self.columns: dict[str, tuple[str, ...]] = {}
        for name, feature in features.items():
            layer, columns = (None, feature) if isinstance(feature, str) else feature
            self.columns[name] = (columns,) if isinstance(columns, str) else tuple(columns)
            if layer is not None:
                self.layers[name] = layer

    def fit(self, table: Table) -> Self:
        """Have every layer learn from its columns, in one pass over `table`."""
        from trek.data.plans.steps import arrays_of

        needed = dict.fromkeys(column for name in self.layers for column in self.columns[name])
        for layer in self._layers().values():
            layer.begin()
        for batch in table.select(*needed):
            arrays = arrays_of(batch)
            for name, layer in self._layers().items():
                layer.observe(stack_columns(arrays, self.columns[name]))
        for layer in self._layers().values():
            layer.settle()
        return self

    def forward(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The features of a batch."""
        return {name: self._feature(name, columns) for name in self.columns}

    def num_ids(self, name: str) -> int:
        """How many ids the feature `name` has."""
        if name not in self.layers:
            raise InputError(f"feature {name!r} has no layer. Those that have: {', '.join(self.layers)}.")
        return self._layers()[name].num_ids

    def _feature(self, name: str, columns: Mapping[str, Any]) -> Any:
        wanted = self.columns[name]
        if all(isinstance(columns.get(column), torch.Tensor) for column in wanted):
            tensors = [columns[column] for column in wanted]
            values = tensors[0] if len(tensors) == 1 else torch.stack(tensors, dim=1)
        else:
            values = stack_columns({k: np.asarray(v) for k, v in columns.items() if k in wanted}, wanted)
        return self.layers[name](values) if name in self.layers else values

    def _layers(self) -> dict[str, Layer]:
        return {name: layer for name, layer in self.layers.items() if isinstance(layer, Layer)}

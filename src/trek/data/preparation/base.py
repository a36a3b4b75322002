"""Layer: one kind of preparation, a torch module whose state is learnt from a Table instead of by gradients.

Contracts, for every Layer:

- Values are a tensor, or a NumPy array (texts, missing values), of shape (n,) or (n, k); the result has the same shape.
- `fit` passes once over the Table: `observe` for every batch, then `settle`. Fitting again starts from nothing.
- Ids are in [0, num_ids); id 0 is for what is missing or unknown, where a layer has such values.
- What was learnt is in the state_dict, as tensors, and loads into a layer that was never fitted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from trek.errors import InputError

if TYPE_CHECKING:
    from trek.data.table import Table

Values = torch.Tensor | np.ndarray


class Layer(nn.Module):
    """Base of all preparation layers; one that learns nothing only defines `forward`."""

    def fit(self, table: Table, *columns: str) -> Self:
        """Learn from these columns of `table`."""
        from trek.data.plans.steps import arrays_of

        self.begin()
        for batch in table.select(*columns):
            self.observe(stack_columns(arrays_of(batch), columns))
        self.settle()
        return self

    def begin(self) -> None:
        """Forget what was observed."""

    def observe(self, values: np.ndarray) -> None:
        """Learn from some rows."""

    def settle(self) -> None:
        """Turn what was observed into state."""

    @property
    def num_ids(self) -> int:
        """How many different ids the layer returns."""
        raise InputError(f"{type(self).__name__} returns numbers, not ids.")

    @abstractmethod
    def forward(self, values: Any) -> Any:
        """The prepared values."""

    def _apply(self, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Move what was learnt, but never round it: model.half() is about weights."""
        learnt = dict(self._buffers)
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in self._buffers.items():
            before = learnt[name]
            if buffer is not None and before is not None and buffer.dtype != before.dtype:
                self._buffers[name] = before.to(buffer.device)
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        # How large the state is depends on the data, so buffers take the size of what is loaded.
        for name, buffer in self._buffers.items():
            loaded = state_dict.get(prefix + name)
            if buffer is not None and loaded is not None and loaded.shape != buffer.shape:
                self._buffers[name] = buffer.new_empty(loaded.shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def stack_columns(arrays: Mapping[str, np.ndarray], columns: tuple[str, ...]) -> np.ndarray:
    """One column as it is, several side by side."""
    for column in columns:
        if column not in arrays:
            raise InputError(f"column {column!r} does not exist. There are: {', '.join(arrays)}.")
    return arrays[columns[0]] if len(columns) == 1 else np.stack([arrays[column] for column in columns], axis=1)


def as_numbers(values: Values) -> torch.Tensor:
    """Values as float64, missing ones NaN: times and ids have more digits than float32 holds."""
    return values.double() if isinstance(values, torch.Tensor) else torch.from_numpy(as_floats(values))


def as_floats(values: np.ndarray) -> np.ndarray:
    """A copy of the values as float64, missing ones NaN."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected numbers, got {values.dtype}, such as {values.flat[0]!r}.") from error


def require_fitted(layer: nn.Module, *, is_fitted: bool) -> None:
    """Refuse to work before anything was learnt."""
    if not is_fitted:
        raise InputError(f"{type(layer).__name__} has not been fitted. Call fit(table, column), or load its state.")

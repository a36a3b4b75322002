"""Reducers: metrics that are not a mean over samples, reduced the user's own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trek.errors import InputError
from trek.strategies import Strategy


class Reducer(ABC):
    """Collects on every rank, then is reduced over ranks.

    Define `state_dict` and `load_state_dict` as well, and what was collected since the last report is saved with the
    run. A run that goes on with fewer processes loads the states of several into one: add to what is there.
    """

    @abstractmethod
    def reset(self) -> None:
        """Remove what was collected."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """The value of this rank."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """The metric (a number), or metrics (a dict), from the values of all ranks."""


class FunctionReducer(Reducer):
    """All values passed to `update`, on all ranks, given to one function."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self._values: list[Any] = []

    def update(self, value: Any) -> None:
        """Collect one value."""
        self._values.append(value)

    def reset(self) -> None:
        """Remove all values."""
        self._values = []

    def state_dict(self) -> dict[str, Any]:
        """The values since the last report."""
        return {"values": self._values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add what `state_dict` gave."""
        self._values.extend(state["values"])

    def per_slot_reduce(self) -> list[Any]:
        """All values of this rank."""
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        """The function of all values of all ranks."""
        return self._function([value for values in per_slot_metrics for value in values])


@dataclass(frozen=True)
class NamedReducer:
    """A reducer, the name of its metric, and when it takes part."""

    reducer: Reducer
    name: str | None
    for_training: bool
    for_validation: bool


def reduce_all(reducers: Iterable[NamedReducer], strategy: Strategy) -> dict[str, float]:
    """The metrics of all reducers, on every rank; afterwards they are empty."""
    metrics: dict[str, float] = {}
    for named in reducers:
        said = strategy.gather(named.reducer.per_slot_reduce())
        metrics.update(_as_metrics(named.reducer.cross_slot_reduce(said), named.name))
        named.reducer.reset()
    return metrics


def _as_metrics(value: Any, name: str | None) -> dict[str, float]:
    if name is not None:
        return {name: float(value)}
    if isinstance(value, dict):
        return {key: float(one) for key, one in value.items()}
    raise InputError(
        f"a reducer without a name must return a dict of metrics, got {type(value).__name__}. "
        "Pass name= to wrap_reducer, or return a dict."
    )

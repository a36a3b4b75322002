"""Reducers: custom metrics that are not a mean over samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.metrics.scalars import Scalars


class Reducer(ABC):
    """Collects values on every rank, then reduces them over ranks.

    A reducer that also defines `state_dict` and `load_state_dict` is saved with the run. A run that is resumed with
    fewer processes loads several states into one reducer, so `load_state_dict` must add to the current state.
    """

    @abstractmethod
    def reset(self) -> None:
        """Discard the collected values."""

    @abstractmethod
    def per_slot_reduce(self) -> Any:
        """The result of this rank."""

    @abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """The metric (a number), or metrics (a dict), from the results of all ranks."""


class FunctionReducer(Reducer):
    """Calls one function with all values passed to `update` on all ranks."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function
        self._values: list[Any] = []

    def update(self, value: Any) -> None:
        """Add one value."""
        self._values.append(value)

    def reset(self) -> None:
        """Discard all values."""
        self._values = []

    def state_dict(self) -> dict[str, Any]:
        """The values since the last report."""
        return {"values": self._values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add the values of `state_dict`."""
        self._values.extend(state["values"])

    def per_slot_reduce(self) -> list[Any]:
        """All values of this rank."""
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        """The function's result for all values of all ranks."""
        return self._function([value for values in per_slot_metrics for value in values])


@dataclass(frozen=True)
class NamedReducer:
    """A reducer, the name of its metric, and the phases in which it is used."""

    reducer: Reducer
    name: str | None
    for_training: bool
    for_validation: bool


def reduce_all(reducers: Iterable[NamedReducer], strategy: Strategy, *, scalars: Scalars) -> dict[str, float]:
    """The metrics of all reducers, on every rank; resets the reducers."""
    metrics: dict[str, float] = {}
    for named in reducers:
        by_rank = strategy.gather(named.reducer.per_slot_reduce())
        metrics.update(scalars.of(_as_metrics(named.reducer.cross_slot_reduce(by_rank), named.name)))
        named.reducer.reset()
    return metrics


def _as_metrics(value: Any, name: str | None) -> dict[str, Any]:
    if name is not None:
        return {name: value}
    if isinstance(value, dict):
        return value
    raise InputError(
        f"a reducer without a name must return a dict of metrics, got {type(value).__name__}. "
        "Pass name= to wrap_reducer, or return a dict."
    )

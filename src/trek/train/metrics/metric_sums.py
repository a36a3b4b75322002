"""Sums of metrics by sample, kept on the device until they are reduced over ranks, by their names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch

from trek.errors import InputError
from trek.strategies import Strategy
from trek.train.metrics.agreed_names import AgreedNames, Kind
from trek.train.metrics.collectors import collector_state, merge_collector_state, preserve_state
from trek.train.metrics.scalars import Scalars

Reduction = Literal["avg", "sum", "max", "min"]
_WIDTH = 3


class MetricSums:
    """Metric values of many batches, each with its number of samples.

    Adding a value costs no device sync and no arithmetic: values are stored unchanged until `reduce`.
    """

    def __init__(self, scalars: Scalars | None = None) -> None:
        self._scalars = scalars or Scalars()
        self._values: dict[str, list[torch.Tensor | float]] = {}
        self._weights: dict[str, list[int]] = {}
        self._objects: dict[str, Any] = {}
        self._names = AgreedNames()
        self._restored: dict[str, list[Any]] = {}
        """States of objects from a checkpoint, until the objects are added again."""

    def __bool__(self) -> bool:
        return bool(self._values or self._objects)

    def add(self, metrics: Mapping[str, Any], *, num_samples: int) -> None:
        """Add the metrics of one batch. A torchmetrics object is kept and computed at `reduce`."""
        for name, value in metrics.items():
            if isinstance(value, torch.Tensor):
                if value.numel() != 1:
                    self._scalars.leave_out(name, value)
                    continue
                if value.is_complex():
                    self._scalars.refuse(name, value)
                value = value.detach()
            elif hasattr(value, "compute") and hasattr(value, "reset"):
                self._objects[name] = value
                for saved in self._restored.pop(name, ()):
                    merge_collector_state(name, value, saved)
                continue
            elif not isinstance(value, float):
                value = self._scalars.number(name, value)
                if value is None:
                    continue
            try:
                self._values[name].append(value)
                self._weights[name].append(num_samples)
            except KeyError:
                self._values[name] = [value]
                self._weights[name] = [num_samples]

    @contextmanager
    def discard_batch(self, *, others: Iterable[Any] = ()) -> Iterator[None]:
        """Restore the objects and `others` after a batch that must not count."""
        known = list(self._objects.values())
        with preserve_state([*known, *others]):
            yield
        for metric in self._objects.values():
            if all(metric is not one for one in known):  # first added in this batch, so it holds nothing else
                metric.reset()

    def names(self) -> list[str]:
        """Names of the metrics that have values."""
        return list(self._values)

    def objects(self) -> list[Any]:
        """The torchmetrics objects that were added."""
        return list(self._objects.values())

    def added(self) -> dict[str, list[tuple[torch.Tensor | float, int]]]:
        """Everything added since the last `reduce`, by name: the values, each with its number of samples."""
        return {name: list(zip(values, self._weights[name], strict=True)) for name, values in self._values.items()}

    def forget_names(self) -> None:
        """The ranks are others now, which have not agreed on names."""
        self._names = AgreedNames()

    def reduce(
        self, strategy: Strategy, *, how: Mapping[str, Reduction] | None = None, clears: bool = True
    ) -> dict[str, float]:
        """The metrics over all samples of all ranks, as numbers; clears the sums, unless the caller does so later.

        `how` gives the reduction of metrics that are not averaged by sample. A metric that only some ranks have logged
        is reduced over their samples.
        """
        how = how or {}
        check_reductions(how)
        own: dict[str, Kind] = dict.fromkeys(self._objects, "object")
        own.update({name: how.get(name, "avg") for name in self._values})
        kinds, totals = self._names.reduce(own, strategy, row=self._row, width=_WIDTH)
        sums = dict(zip(kinds, totals.tolist(), strict=True))
        results = self._compute_objects(kinds, sums, strategy)
        extremes = self._reduce_extremes(kinds, strategy)
        for name, (total, weight, num_ranks) in sums.items():
            if num_ranks and kinds[name] != "object":
                results[name] = _result(kinds[name], total, weight, extreme=extremes.get(name, math.nan))
        if clears:
            self.clear()
        return results

    def clear(self) -> None:
        """Remove all metrics."""
        self._values.clear()
        self._weights.clear()
        self._objects.clear()
        self._restored.clear()

    def state_dict(self) -> dict[str, Any]:
        """Everything added since the last `reduce`."""
        return {
            "values": {name: self._column(name) for name in self._values},
            "weights": {name: list(weights) for name, weights in self._weights.items()},
            "objects": {name: collector_state(metric) for name, metric in self._objects.items()},
        }

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the states of several ranks together; an empty list clears the sums."""
        self.clear()
        for state in states:
            for name, column in state["values"].items():
                self._values.setdefault(name, []).extend(column.unbind())
                self._weights.setdefault(name, []).extend(state["weights"][name])
            for name, saved in state["objects"].items():
                if saved is not None:
                    self._restored.setdefault(name, []).append(saved)

    def _computed(self, names: Sequence[str]) -> dict[str, float]:
        """The metrics of torchmetrics objects; a MetricCollection has names of its own."""
        results: dict[str, Any] = {}
        for name in names:
            metric = self._objects[name]
            value = metric.compute()
            found = dict(value) if isinstance(value, Mapping) else {name: value}
            if doubled := found.keys() & (results.keys() | self._values.keys()):
                raise InputError(
                    f"metric {min(doubled)!r} is given twice, once by {type(metric).__name__}. Rename one."
                )
            results.update(found)
        return self._scalars.of(results)

    def _column(self, name: str) -> torch.Tensor:
        """All values of one metric, in float64 on the host."""
        values = self._values[name]
        try:
            stacked = torch.stack(values)  # type: ignore[arg-type]  # the common case: all are tensors
            return stacked.reshape(-1).to("cpu", torch.float64)
        except (TypeError, RuntimeError):  # some are numbers, or their shapes or devices differ
            return torch.tensor([float(value) for value in values], dtype=torch.float64)

    def _row(self, name: str, kind: Kind) -> torch.Tensor:
        """A metric's total, its weight, and 1 for this rank; an extreme's total is not 0 if it is not a number."""
        if kind == "object" or name not in self._values:
            return torch.tensor([0.0, 0.0, float(kind == "object" and name in self._objects)], dtype=torch.float64)
        weights = torch.tensor(self._weights[name], dtype=torch.float64)
        # The value of a stand-in must not count, even if it is NaN.
        values = torch.where(weights > 0, self._column(name), 0.0)
        if kind in ("max", "min"):
            total = values.isnan().sum().double()
        else:
            total = values.sum() if kind == "sum" else values.dot(weights)
        return torch.stack([total, weights.sum(), torch.ones((), dtype=torch.float64)])

    def _compute_objects(
        self, kinds: Mapping[str, Kind], sums: Mapping[str, list[float]], strategy: Strategy
    ) -> dict[str, float]:
        """Compute torchmetrics objects, which exchange their states themselves, in the same order on every rank."""
        names = [name for name, kind in kinds.items() if kind == "object" and sums[name][2]]
        for name in names:
            if sums[name][2] < strategy.world.size:
                raise InputError(
                    f"metric {name!r} is a torchmetrics object that only {sums[name][2]:.0f} of {strategy.world.size} "
                    "ranks logged, but all must compute it together. Log it on every rank."
                )
        results = self._computed(names)
        for metric in self._objects.values():
            metric.reset()
        return results

    def _reduce_extremes(self, kinds: Mapping[str, Kind], strategy: Strategy) -> dict[str, float]:
        """The largest and smallest values over ranks, in one message."""
        signs = {name: 1.0 if kind == "max" else -1.0 for name, kind in kinds.items() if kind in ("max", "min")}
        if not signs:
            return {}
        local = [self._extreme(name, sign) for name, sign in signs.items()]
        largest = strategy.reduce(torch.tensor(local, dtype=torch.float64), "max").tolist()
        return {name: sign * value for (name, sign), value in zip(signs.items(), largest, strict=True)}

    def _extreme(self, name: str, sign: float) -> float:
        if name not in self._values:
            return -math.inf
        values = sign * self._column(name)[torch.tensor(self._weights[name]) > 0]
        values = values[~values.isnan()]
        return float(values.max()) if len(values) else -math.inf


def check_reductions(how: Mapping[str, Any]) -> None:
    """Raise `InputError` unless every one of these reductions exists."""
    unknown = sorted(set(map(str, how.values())) - set(get_args(Reduction)))
    if unknown:
        raise InputError(f"unknown reduction {unknown[0]!r}. Use one of: {', '.join(get_args(Reduction))}.")


def _result(kind: Kind, total: float, weight: float, *, extreme: float) -> float:
    if kind == "sum":
        return total
    if not weight:
        return math.nan
    if kind == "avg":
        return total / weight
    return math.nan if total else extreme

"""AgreedNames: the metrics that the ranks report together, so that each is summed by its name.

Ranks may log in any order, and not every metric on every rank. They exchange names only when some rank has a new one:
every reduction tells that by one number, which travels with the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch

from trek.strategies import Strategy

Kind = Literal["avg", "sum", "max", "min", "object"]


class AgreedNames:
    """The names and kinds of metrics known to all ranks of one `MetricSums`, in the same order."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def reduce(
        self, own: Mapping[str, Kind], strategy: Strategy, *, row: Callable[[str, Kind], torch.Tensor], width: int
    ) -> tuple[dict[str, Kind], torch.Tensor]:
        """The kinds of all metrics by name, and for each the sum over ranks of its `row` of `width` numbers.

        `own` are the metrics of this rank; for the others it contributes zeros.
        """
        for _ in range(2):
            is_new = any(self._kinds.get(name) != kind for name, kind in own.items())
            nothing = torch.zeros(width, dtype=torch.float64)
            rows = [row(name, kind) if name in own else nothing for name, kind in self._kinds.items()]
            news = torch.full((1, width), float(is_new), dtype=torch.float64)
            totals = strategy.reduce(torch.cat([torch.stack(rows), news]) if rows else news)
            if not totals[-1, 0]:
                break
            self._agree(own, strategy)
        return dict(self._kinds), totals[:-1]

    def _agree(self, own: Mapping[str, Kind], strategy: Strategy) -> None:
        """Exchange names; where ranks reduce a metric in different ways, the first rank's way counts."""
        known, self._kinds = self._kinds, {}
        for kinds in (*strategy.gather(dict(own)), known):
            for name, kind in kinds.items():
                self._kinds.setdefault(name, kind)

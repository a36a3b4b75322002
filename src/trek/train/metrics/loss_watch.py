"""LossWatch: tells of a training loss that is not a finite number, once, and ends the run if its settings say so.

It looks when the metrics are reported, since that is when their values are read from the device anyway.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trek.errors import TrainingError
from trek.strategies import Strategy
from trek.train.loop.position import Position

logger = logging.getLogger(__name__)

OnNaN = Literal["warn", "stop"]
Values = Mapping[str, Sequence[tuple[Any, int]]]
"""Values of metrics, one after the other, each with its number of samples."""


@dataclass(frozen=True, order=True)
class _Finding:
    """The first value of a rank that is not finite."""

    batch: int
    """0 if it is not known which one."""
    rank: int
    name: str
    value: float

    def __str__(self) -> str:
        place = f"in batch {self.batch}" if self.batch else "since the last report"
        return f"the metric {self.name!r} is {self.value} {place} on rank {self.rank}"


class LossWatch:
    """Watches the metrics whose names contain "loss"; if there are none, all metrics."""

    def __init__(self, strategy: Strategy, *, on_nan: OnNaN = "warn") -> None:
        self._strategy = strategy
        self._on_nan = on_nan
        self.has_told = False
        """The same on all ranks."""
        self._batches: int | None = 0

    def forget_position(self) -> None:
        """The run continues from a checkpoint, and values may have been added before it."""
        self._batches = None

    def check(self, reported: Mapping[str, float], values: Values, position: Position) -> None:
        """Check a report, of which `values` were added on this rank; called on all ranks together."""
        before, self._batches = self._batches, position.batches
        watched = [name for name in reported if "loss" in name] or list(reported)
        if self.has_told or all(math.isfinite(reported[name]) for name in watched):
            return
        # What is reported is the same on all ranks, so all of them come here.
        num_batches = None if before is None else position.batches - before
        found = [self._find(name, values.get(name, ()), position.batches, num_batches) for name in watched]
        self._tell(min((one for one in found if one is not None), default=None))

    def _find(
        self, name: str, values: Sequence[tuple[Any, int]], batches: int, num_batches: int | None
    ) -> _Finding | None:
        for index, (value, num_samples) in enumerate(values):
            if num_samples and not math.isfinite(value):
                is_one_per_batch = len(values) == num_batches or (num_batches is None and len(values) <= batches)
                batch = batches - len(values) + index + 1 if is_one_per_batch else 0
                return _Finding(batch, self._strategy.world.rank, name, float(value))
        return None

    def _tell(self, own: _Finding | None) -> None:
        self.has_told = True
        everyone = self._strategy.gather(None if own is None else [own.batch, own.rank, own.name, own.value])
        found = [_Finding(*one) for one in everyone if one is not None]
        if not found:  # finite values whose sum is not
            return
        if self._on_nan == "stop":
            raise TrainingError(
                f"{min(found)}, and on_nan is 'stop'. Resume from an earlier checkpoint with a smaller learning rate, "
                "or with clip_norm."
            )
        if self._strategy.world.is_leader:
            logger.warning(
                "%s; training goes on. Lower the learning rate or set clip_norm; on_nan='stop' ends such a run.",
                min(found),
            )

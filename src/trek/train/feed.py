"""Feed: hands a training loop its batches, on the device, weighed, from where the run stands.

Owns the position in the data and the random states that go with it. Knows nothing of models or metrics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from trek.data.loaders import Loader
from trek.data.loaders.base import nothing
from trek.strategies import Strategy
from trek.train.portions import Portion, agreed, portions
from trek.train.position import Position
from trek.world.seeds import random_state, restore_random_state


class Feed:
    """Batches from where the run stands."""

    def __init__(self, strategy: Strategy, *, accumulate: int) -> None:
        self.position = Position()
        self.wait_s = 0.0
        """Seconds spent waiting for data since somebody set it to 0."""
        self._strategy = strategy
        self._device = strategy.world.device
        self._accumulate = accumulate
        self._epoch_start: dict[str, Any] = {}
        self._resumed: Mapping[str, Any] | None = None

    def training(self, loader: Loader) -> Iterator[Portion]:
        """The rest of the current epoch. The position counts a batch once it is handed out."""
        position = self.position
        weighed = self._weighed(loader)
        while True:
            asked = time.perf_counter()
            portion = next(weighed, None)
            if portion is None:
                return
            portion.data = to_device(portion.data, self._device)
            self.wait_s += time.perf_counter() - asked
            position.take(records=portion.global_samples, ends_group=portion.is_last)
            yield portion

    def validation(self, loader: Loader) -> Iterator[Portion]:
        """One pass, always over the same rows in the same order."""
        batches = loader.batches(0)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = agreed(batches, self._strategy)
        for portion in portions(batches, strategy=self._strategy):
            portion.data = to_device(portion.data, self._device)
            yield portion

    def rank_state(self) -> dict[str, Any]:
        """The random generators now, and at the start of the epoch."""
        return {"random": random_state(), "epoch_start": self._epoch_start}

    def load(self, position: Mapping[str, int], rank: Mapping[str, Any] | None) -> None:
        """Go on from `position`; the generators of a rank that did not exist before start from their seed."""
        self.position.load_state_dict(dict(position))
        self._resumed = rank

    def _weighed(self, loader: Loader) -> Iterator[Portion]:
        position = self.position
        at_start = self._begin_epoch()
        batches = loader.batches(position.epoch, start=position.epoch_batch, at_start=at_start)
        if loader.num_batches is None and self._strategy.world.is_distributed:
            batches = agreed(batches, self._strategy)
        records = loader.records(position.epoch) if self._accumulate > 1 else None
        return portions(
            batches,
            strategy=self._strategy,
            accumulate=self._accumulate,
            records=records[position.epoch_batch :] if records is not None else None,
            taken=position.group_batches,
            taken_records=position.group_records,
        )

    def _begin_epoch(self) -> Any:
        """What to do when reading stands where the run stood: after a resume, put the generators back.

        Reading up to there happens from the generators as they were when the epoch began, so that data which draws
        from them comes in the same order again.
        """
        if self._resumed is None:
            self._epoch_start = random_state()
            return nothing
        resumed, self._resumed = self._resumed, None
        if self.position.epoch_batch == 0:
            restore_random_state(resumed["random"])
            self._epoch_start = random_state()
            return nothing
        self._epoch_start = resumed["epoch_start"]
        restore_random_state(self._epoch_start)
        return lambda: restore_random_state(resumed["random"])


def to_device(data: Any, device: torch.device) -> Any:
    """`data` with every tensor in it on `device`."""
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, list | tuple):
        return type(data)(to_device(value, device) for value in data)
    return data

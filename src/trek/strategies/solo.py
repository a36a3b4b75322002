"""One process: every collective is an identity, so callers need no special case."""

from __future__ import annotations

from typing import Any

import torch

from trek.errors import ConfigError
from trek.strategies.base import ReduceOp, Strategy


class Solo(Strategy):
    """A World of one process."""

    name = "solo"

    @classmethod
    def check_workers(cls, num_workers: int) -> None:
        """One process: several would train independently."""
        if num_workers > 1:
            raise ConfigError(
                f"strategy 'solo' trains one replica, got {num_workers} processes. Use strategy 'ddp', or one worker."
            )

    def loss_weight(self, num_samples: int, global_samples: int) -> float:
        """The share of this batch in the samples whose gradients are accumulated."""
        return num_samples / global_samples

    def reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum") -> torch.Tensor:
        """The tensor itself."""
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """A list of the one value."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """The value itself."""
        return value

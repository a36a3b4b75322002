"""MembershipSettings: how many workers a job has, and how patient it is with them."""

from __future__ import annotations

from dataclasses import dataclass

from trek.elastic.checks import require_count, require_seconds
from trek.errors import InputError


@dataclass(frozen=True)
class MembershipSettings:
    """How many workers, and how patient to be with them."""

    min_workers: int
    max_workers: int
    heartbeat_s: float = 20.0
    """A member that sends no heartbeat for so long is evicted."""
    stuck_s: float = 60.0
    """A member that waits for its peers so long in a generation that has ended is evicted."""
    settle_s: float = 5.0
    """How long the first generation waits for workers that are still starting, once there are enough."""
    loss_s: float = 300.0
    """A job that completes nothing ends only when it has lost workers for so long; see `max_losses`."""
    max_restarts: int = 5
    """How often the job may go on from a checkpoint because no worker survived, unless it has come further since."""

    def __post_init__(self) -> None:
        for name in ("min_workers", "max_workers"):
            require_count(getattr(self, name), name)
        require_count(self.max_restarts, "max_restarts", least=0)
        for name in ("heartbeat_s", "stuck_s", "loss_s"):
            require_seconds(getattr(self, name), name)
        if self.min_workers > self.max_workers:
            raise InputError(f"min_workers must be at most max_workers, got {self.min_workers} and {self.max_workers}.")

    @property
    def max_losses(self) -> int:
        """How many workers may be lost, one after another, without a step completed in between."""
        return 3 * self.max_workers

"""IdleRunner: a TrialRunner that has slots and starts nothing, for tests of services and routes."""

from __future__ import annotations

from dataclasses import dataclass

from trek.control.trials.cluster_view import NodeView
from trek.engines import Node


@dataclass
class IdleRunner:
    """Implements `trek.control.trials.trial_runner.TrialRunner`."""

    slots: int = 1
    engine_name: str = "local"
    has_gpus: bool = False
    can_grow: bool = False
    num_wakes: int = 0
    """How often it was woken."""

    @property
    def free_slots(self) -> int:
        """All of them."""
        return self.slots

    def nodes(self) -> list[NodeView]:
        """One, without trials."""
        return [NodeView(Node("here", "127.0.0.1", self.slots), ())]

    def wake(self) -> None:
        """Count the call."""
        self.num_wakes += 1

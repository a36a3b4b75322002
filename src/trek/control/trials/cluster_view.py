"""ClusterView: the machines of the Engine as the control plane knows them, followed as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from trek.engines import Engine, Gang, Node
from trek.errors import TrekError
from trek.system.clock import Clock

REFRESH_S = 2.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeView:
    """A machine, and the trials that have processes there."""

    node: Node
    trials: tuple[int, ...]


class ClusterView:
    """See the module. `slots`, where given, is fixed, whatever the Engine has."""

    def __init__(self, engine: Engine, *, slots: int | None, clock: Clock) -> None:
        self._engine = engine
        self._fixed = slots
        self._clock = clock
        self._nodes = engine.nodes()
        self._next_s = clock.monotonic_s() + REFRESH_S

    @property
    def slots(self) -> int:
        """How many processes can train at once."""
        return self._fixed or sum(node.slots for node in self._nodes)

    @property
    def has_gpus(self) -> bool:
        """Whether a slot is a GPU."""
        return any(node.num_gpus for node in self._nodes)

    @property
    def can_grow(self) -> bool:
        """Whether more slots may come, so that a trial that needs them waits."""
        return self._engine.can_grow and not self._fixed

    def refresh(self) -> None:
        """Ask the Engine again, now and then; where it cannot be reached, what was known stays."""
        if self._clock.monotonic_s() < self._next_s:
            return
        self._next_s = self._clock.monotonic_s() + REFRESH_S
        try:
            found = self._engine.nodes()
        except TrekError as error:
            _LOG.warning("the machines of the engine %s cannot be listed: %s", self._engine.name, error)
            return
        if found != self._nodes:
            slots = sum(node.slots for node in found)
            _LOG.info("the engine %s has %d nodes with %d slots now", self._engine.name, len(found), slots)
        self._nodes = found

    def nodes(self, gangs: Mapping[int, Gang]) -> list[NodeView]:
        """The machines, with the trials of `gangs` that have processes there."""
        hosts = {trial_id: gang.used_nodes for trial_id, gang in gangs.items()}
        return [
            NodeView(node, tuple(sorted(trial_id for trial_id, used in hosts.items() if node.id in used)))
            for node in self._nodes
        ]

"""TrialRunner: what services need of whatever runs the trials. The Supervisor is one; tests may bring a simpler one."""

from __future__ import annotations

from typing import Protocol

from trek.control.trials.cluster_view import NodeView


class TrialRunner(Protocol):
    """Owns the slots, and acts on what services write to the store."""

    @property
    def engine_name(self) -> str:
        """The engine that trials run on."""

    @property
    def slots(self) -> int:
        """How many processes can train at once."""

    @property
    def free_slots(self) -> int:
        """How many slots no trial holds."""

    @property
    def has_gpus(self) -> bool:
        """Whether a slot is a GPU, which trials cannot share."""

    @property
    def can_grow(self) -> bool:
        """Whether more slots may come, so that a trial that needs them waits."""

    def nodes(self) -> list[NodeView]:
        """The machines that trials run on, and which trials have processes there."""

    def wake(self) -> None:
        """Look at the store now instead of at the next tick. Returns at once."""

"""What the autoscaler of a Ray cluster is asked for, and how much of it that autoscaler can give.

Ray has two of them. The older one adds as many nodes as its limits allow; the newer one adds none for a request that
exceeds them, and only says so. The limits themselves are not told, so fewer are asked for until a request is granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.autoscaler.sdk import request_resources
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]
from ray.exceptions import RayError

from trek.errors import OutsideError

_DECIDED_AFTER = 2
"""After how many reports of the autoscaler its answer is one to the last request: one may have been under way."""
_TIMEOUT_S = 10


@dataclass
class RoomSearch:
    """The largest number that is granted, found by halves. Pure."""

    granted: int = 0
    refused: int | None = None

    def choose(self, wanted: int) -> int:
        """How many to ask for."""
        if self.refused is None or wanted < self.refused:
            return wanted
        return (self.granted + self.refused) // 2

    def note(self, asked: int, *, is_granted: bool) -> None:
        """Take in the answer to a request."""
        if is_granted:
            self.granted = max(self.granted, asked)
        else:
            self.refused = min(asked, self.refused or asked)
            self.granted = min(self.granted, self.refused - 1)


class Autoscaler:
    """Asks for room. A request stands until the next one; what was refused is asked for again after a withdrawal."""

    def __init__(self) -> None:
        self._search = RoomSearch()
        self._asked = 0
        self._num_reports = 0

    def ask(self, demand: Mapping[str, float], num_workers: int) -> None:
        """Ask for nodes that hold `num_workers` with this demand at once; 0 withdraws the request."""
        try:
            self._ask(demand, num_workers)
        except RayError as error:
            raise OutsideError(f"the Ray cluster cannot be asked for more nodes: {error}") from error

    def _ask(self, demand: Mapping[str, float], num_workers: int) -> None:
        state = _autoscaling_state()
        if not num_workers:
            self._search = RoomSearch()
        elif self._asked:
            self._take_answer(state)
        chosen = self._search.choose(num_workers)
        request_resources(bundles=[dict(demand)] * chosen)
        if chosen != self._asked:
            self._asked, self._num_reports = chosen, state.autoscaler_state_version

    def _take_answer(self, state: Any) -> None:
        if self._asked in _refused(state):
            self._search.note(self._asked, is_granted=False)
        elif state.autoscaler_state_version >= self._num_reports + _DECIDED_AFTER:
            self._search.note(self._asked, is_granted=True)


def _autoscaling_state() -> Any:
    """What the newer autoscaler reported last; empty where there is none."""
    reply = GetClusterStatusReply()
    address = ray.get_runtime_context().gcs_address
    reply.ParseFromString(GcsClient(address).get_cluster_status(timeout_s=_TIMEOUT_S))
    return reply.autoscaling_state


def _refused(state: Any) -> set[int]:
    """For how many workers a request was refused."""
    refused = state.infeasible_cluster_resource_constraints
    return {sum(one.count for one in constraint.resource_requests) for constraint in refused}

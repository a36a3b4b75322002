"""SimulatedEngine: gangs without processes, for what a control plane can hold: they end when they are told to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from trek.engines.base import WORKER, Engine, Exit, Gang, GangSpec, Handle, LogLine, OutputLine, Placement
from trek.engines.member_folder import OUTCOME
from trek.errors import InputError


class SimulatedGang(Gang):
    """Members that exist as numbers. `finish` ends all of them well."""

    def __init__(self, spec: GangSpec, *, num_nodes: int) -> None:
        self.spec = spec
        self._num_nodes = num_nodes
        self._exits: list[Exit] | None = None

    def finish(self) -> None:
        """End as processes do that trained to the end."""
        self._exits = [Exit(rank, self._host(rank), 1, 0) for rank in range(self.num_workers)]

    def _host(self, rank: int) -> str:
        return f"node-{rank % self._num_nodes}"

    @property
    def handle(self) -> Handle | None:
        """None: nothing to find again."""
        return None

    @property
    def secret(self) -> str:
        """As the spec says."""
        return self.spec.secret

    @property
    def num_workers(self) -> int:
        """As the spec says."""
        return self.spec.num_workers

    def addresses(self, role: str) -> list[str]:
        """None listens."""
        return []

    @property
    def placements(self) -> list[Placement]:
        """On one node after the other."""
        return [Placement(WORKER, rank, self._host(rank), 1, ("cpu",)) for rank in range(self.num_workers)]

    def wait(self, timeout_s: float | None = None) -> list[Exit] | None:
        """The exits, once it was finished or stopped."""
        return self._exits

    def wait_first_failure(self, timeout_s: float | None = None) -> Exit | None:
        """None fails."""
        return None

    def stop(self, *, grace_s: float = 5.0) -> None:
        """Ends at once."""
        self.finish()

    def detach(self) -> None:
        """Nothing watches."""

    def resize(self, count: int, *, role: str = WORKER) -> None:
        """Refused."""
        raise InputError("a simulated gang keeps its size.")

    def kill(self, rank: int, *, role: str = WORKER) -> None:
        """Refused."""
        raise InputError("a simulated gang has no processes to kill.")

    def restart(self, rank: int, *, role: str = WORKER) -> None:
        """Refused."""
        raise InputError("a simulated gang has no processes to restart.")

    def read_log(self, rank: int, position: int = 0, *, role: str = WORKER) -> list[LogLine]:
        """Nothing is written."""
        return []

    def read_file(
        self, name: str, *, rank: int, role: str = WORKER, start: int = 0, size: int | None = None
    ) -> bytes | None:
        """The outcome of a member that trained to the end."""
        if name != OUTCOME or self._exits is None:
            return None
        told = {"rank": rank, "kind": "done", "message": "", "traceback": "", "stop_reason": "", "time_s": time.time()}
        return json.dumps(told).encode()

    def write_file(self, name: str, data: bytes) -> None:
        """Nobody reads."""

    def ask(self, *, timeout_s: float) -> dict[int, dict[str, Any]]:
        """None answers."""
        return {}


class SimulatedEngine(Engine):
    """`num_nodes` nodes with `slots_per_node` slots, none of which runs anything. `gangs` are by TREK_TRIAL_ID."""

    name = "simulated"

    def __init__(self, *, num_nodes: int, slots_per_node: int) -> None:
        self._num_nodes = num_nodes
        self._slots_per_node = slots_per_node
        self.gangs: dict[int, SimulatedGang] = {}

    def start(
        self,
        spec: GangSpec,
        *,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> SimulatedGang:
        """A gang that does nothing."""
        gang = SimulatedGang(spec, num_nodes=self._num_nodes)
        self.gangs[_trial_of(spec.env)] = gang
        return gang

    def handle_of(self, spec: GangSpec) -> Handle | None:
        """None."""
        return None

    def attach(
        self,
        handle: Handle,
        *,
        spec: GangSpec | None = None,
        on_line: Callable[[OutputLine], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> Gang:
        """Refused."""
        raise InputError("a simulated gang ends with its process.")

    def slots(self) -> int:
        """Of all nodes."""
        return self._num_nodes * self._slots_per_node

    def num_gpus(self) -> int:
        """None."""
        return 0


def _trial_of(variables: Mapping[str, str]) -> int:
    return int(variables.get("TREK_TRIAL_ID", "0"))

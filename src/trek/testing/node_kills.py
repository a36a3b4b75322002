"""Deaths of nodes that seeds choose, for campaigns on a real cluster: which node dies when, how, and what replaces it.

A job runs on nodes that are added for it. In every second seed the raylet dies alone, and its workers notice by
themselves; in the others they are killed with it. In every third seed nothing takes the node's place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from trek.testing.ray_cluster import RayCluster
from trek.testing.recorded_gang import wait_for


@dataclass(frozen=True)
class NodeKill:
    """What a seed chooses."""

    victim: int
    progress: int
    """How far the job is when the node dies, in whatever the campaign counts."""
    delay_s: float
    """Between that and the death, for moments that nothing counts."""
    takes_workers: bool
    is_replaced: bool

    @classmethod
    def drawn(cls, seed: int, *, num_nodes: int, max_progress: int, max_delay_s: float = 0.0) -> Self:
        """The choice of `seed`."""
        chooser = random.Random(seed)  # noqa: S311 - tests that can be repeated
        return cls(
            victim=chooser.randrange(num_nodes),
            progress=chooser.randrange(1, max_progress + 1),
            delay_s=chooser.uniform(0.0, max_delay_s),
            takes_workers=seed % 2 == 1,
            is_replaced=seed % 3 > 0,
        )


class DoomedNodes:
    """A context with nodes for one job, of which one is killed during it and the others after it."""

    def __init__(self, cluster: RayCluster, kill: NodeKill, *, num_nodes: int, **room: Any) -> None:
        """`room` is what each node has: `cpus`, and resources by name."""
        self._cluster = cluster
        self._kill = kill
        self._num_nodes = num_nodes
        self._room = room
        self._alive: list[Any] = []
        self.victim_address = ""

    def __enter__(self) -> Self:
        self._alive = [self._cluster.add_node(**self._room) for _ in range(self._num_nodes)]
        self.victim_address = str(self._alive[self._kill.victim].node_ip_address)
        return self

    def strike(
        self,
        progress: Callable[[], int],
        *,
        is_over: Callable[[], bool] = lambda: False,
        before: Callable[[], object] = lambda: None,
        poll_s: float = 0.01,
    ) -> None:
        """Wait until `progress` is what the seed says, or the job is over; call `before`, and kill."""
        wait_for(lambda: is_over() or progress() >= self._kill.progress, poll_s=poll_s)
        time.sleep(self._kill.delay_s)
        before()
        self._cluster.kill_node(self._alive.pop(self._kill.victim), with_workers=self._kill.takes_workers)
        if self._kill.is_replaced:
            self._alive.append(self._cluster.add_node(**self._room))

    def __exit__(self, *_: object) -> None:
        for node in self._alive:
            self._cluster.kill_node(node)

"""A real Ray cluster of several nodes on this machine, each a raylet of its own with an address of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STORE_BYTES = 80 << 20
"""Near the least that Ray takes."""


_QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 2,
}
"""A node that was killed counts as dead after about a second, where Ray's default is some ten."""


class RayCluster:
    """Nodes that can be added and killed. The head is never killed: this process is connected to it."""

    def __init__(self, *, num_nodes: int, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        self._num_nodes = 0
        head = {**self._settings(), "include_dashboard": False, "_system_config": _QUICK}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: list[Any] = []
        for _ in range(num_nodes - 1):
            self.add_node()

    @property
    def address(self) -> str:
        """Where it is reached."""
        return str(self._cluster.address)

    def add_node(self, **resources: float) -> Any:
        """Another node, which is there when this returns."""
        node = self._cluster.add_node(**{**self._settings(), "resources": resources})
        self.nodes.append(node)
        return node

    def kill_node(self, node: Any) -> None:
        """SIGKILL to the raylet; its workers notice by themselves."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End everything."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    def _settings(self) -> dict[str, Any]:
        self._num_nodes += 1
        # Every node has an address of its own, as on a network: all of 127.0.0.0/8 is this machine. Ray reads the first
        # one as another name of the machine.
        return {
            "num_cpus": self._cpus,
            "object_store_memory": STORE_BYTES,
            "node_ip_address": f"127.0.0.{self._num_nodes + 1}",
        }


@contextmanager
def ray_cluster(*, num_nodes: int = 3, cpus: int = 4) -> Iterator[RayCluster]:
    """A cluster for the block. What Ray changes in the environment is put back."""
    before = dict(os.environ)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = RayCluster(num_nodes=num_nodes, cpus=cpus)
    try:
        yield cluster
    finally:
        cluster.close()
        with contextlib.suppress(KeyError):
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
        os.environ.update(before)

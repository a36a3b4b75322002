"""A Ray cluster that keeps its state in a Redis, so that its control process can be killed and started again.

One node with processes that are children of this one; this process is not connected to it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trek.engines.free_port import find_free_port
from trek.testing.ray_cluster import STORE_BYTES, with_environment


def has_redis() -> bool:
    """Whether a Redis can be started here."""
    return shutil.which("redis-server") is not None


class LastingHead:
    """The head, which forgets nothing when its control process is killed."""

    def __init__(self, *, cpus: int) -> None:
        from ray.cluster_utils import Cluster

        settings = {
            "gcs_server_port": find_free_port(),
            "num_cpus": cpus,
            "object_store_memory": STORE_BYTES,
            "node_ip_address": "127.0.0.2",
            "include_dashboard": False,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=settings)

    @property
    def address(self) -> str:
        """Where it is reached."""
        return str(self._cluster.address)

    def kill_control_process(self) -> None:
        """SIGKILL to the process that holds the cluster's state; nodes and members are left as they are."""
        self._node.kill_gcs_server()

    def start_control_process(self) -> None:
        """Start it again at the same address."""
        self._node.start_gcs_server()

    def close(self) -> None:
        """End everything."""
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    @property
    def _node(self) -> Any:
        return self._cluster.head_node


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """The address of a Redis of its own."""
    port = find_free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not _listens(port):
            assert process.poll() is None, "redis-server could not be started"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def lasting_head(folder: Path, *, cpus: int) -> Iterator[LastingHead]:
    """A head with a Redis, for the block. What Ray changes in the environment is put back."""
    with redis_server(folder) as address, with_environment({"RAY_REDIS_ADDRESS": address}):
        head = LastingHead(cpus=cpus)
        del os.environ["RAY_REDIS_ADDRESS"]  # it is for the head alone
        try:
            yield head
        finally:
            head.close()

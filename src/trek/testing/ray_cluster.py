"""A real Ray cluster of several nodes on this machine, each a raylet of its own with an address of its own."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import psutil

from trek.engines.free_port import find_free_port

STORE_BYTES = 80 << 20
"""Near the least that Ray takes."""


_QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 20_000,
    "health_check_failure_threshold": 2,
}
"""A node that was killed counts as dead after about a second, where Ray's default is some ten; a slow one does not."""
_RELEASE_S = 120.0
"""How long Ray may take to give back what nobody uses any more."""


class RayCluster:
    """Nodes that can be added and killed. The head is never killed: this process is connected to it."""

    def __init__(self, *, num_nodes: int, cpus: int, store_bytes: int) -> None:
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        self._store_bytes = store_bytes
        self._num_nodes = 0
        head = {**self._settings(), "include_dashboard": False, "_system_config": _QUICK}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: list[Any] = []
        self.far_nodes: list[FarNode] = []
        for _ in range(num_nodes - 1):
            self.add_node()

    @property
    def address(self) -> str:
        """Where it is reached."""
        return str(self._cluster.address)

    def add_node(self, *, cpus: int | None = None, **resources: float) -> Any:
        """Another node, which is there when this returns."""
        settings = {**self._settings(), "resources": resources}
        node = self._cluster.add_node(**{**settings, "num_cpus": cpus or self._cpus})
        self.nodes.append(node)
        return node

    def add_far_node(self, hidden: Path, **resources: float) -> FarNode:
        """Another node, which does not see this machine's folder `hidden`: it has a disk of its own there."""
        mounts = f"mount -t tmpfs trek-test {shlex.quote(str(hidden))}"
        return self._add_mounted(FarNode(self.address, mounts=mounts, settings=self._settings(), resources=resources))

    def add_gpu_node(self, num_gpus: int, **resources: float) -> FarNode:
        """Another node, which has GPUs as far as Ray and Trek can tell: nothing can be computed on them."""
        settings = {**self._settings(), "num_gpus": num_gpus}
        mounts = _GPU_MOUNTS.format(names=" ".join(f"nvidia{number}" for number in range(num_gpus)))
        return self._add_mounted(FarNode(self.address, mounts=mounts, settings=settings, resources=resources))

    def _add_mounted(self, node: FarNode) -> FarNode:
        self.far_nodes.append(node)
        while not node.is_alive:
            node.check_running()
            time.sleep(0.1)
        return node

    def kill_node(self, node: Any, *, with_workers: bool = False) -> None:
        """SIGKILL to the raylet; its workers notice by themselves, unless they are killed with it."""
        self.nodes.remove(node)
        if with_workers:
            kill_all(*self.processes(node))
        self._cluster.remove_node(node, allow_graceful=False)

    @staticmethod
    def processes(node: Any) -> list[psutil.Process]:
        """The raylet of a node, and everything that it runs."""
        (started,) = node.all_processes["raylet"]
        raylet = psutil.Process(started.process.pid)
        return [raylet, *raylet.children(recursive=True)]

    @contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """Fail if jobs of the block leave actors, reserved room, CPUs in use or objects of this process behind."""
        before = _held()
        yield
        deadline = time.monotonic() + _RELEASE_S
        while left := _held() - before:
            assert time.monotonic() < deadline, f"left on the cluster: {', '.join(sorted(left))}"
            time.sleep(0.1)

    def close(self) -> None:
        """End everything."""
        import ray

        for node in self.far_nodes:
            node.kill()
        ray.shutdown()
        self._cluster.shutdown()  # type: ignore[no-untyped-call]

    def _settings(self) -> dict[str, Any]:
        self._num_nodes += 1
        # Every node has an address of its own, as on a network: all of 127.0.0.0/8 is this machine. Ray reads the first
        # one as another name of the machine.
        return {
            "num_cpus": self._cpus,
            "object_store_memory": self._store_bytes,
            "node_ip_address": node_address(self._num_nodes),
        }


_GPU_MOUNTS = """
layers=$(mktemp -d)
mount -t tmpfs trek-test $layers
mkdir $layers/upper $layers/work $layers/shm
for name in {names}; do touch $layers/upper/$name; done
mount --bind /dev/shm $layers/shm
mount -t overlay -o lowerdir=/dev,upperdir=$layers/upper,workdir=$layers/work trek-test /dev
mount --bind $layers/shm /dev/shm
"""
"""Gives /dev further names, without which Trek counts no GPU. The memory that processes share stays what it was."""


def node_address(number: int) -> str:
    """The loopback address of a node, counted from 1: campaigns start more nodes than the last byte can tell apart."""
    return str(IPv4Address("127.0.0.1") + number)


class FarNode:
    """A node with mounts of its own, made by `mounts` in a shell: it sees other disks or devices than this machine."""

    def __init__(
        self, address: str, *, mounts: str, settings: Mapping[str, Any], resources: Mapping[str, float]
    ) -> None:
        self.node_ip_address = str(settings["node_ip_address"])
        start = [
            f"--address={address}",
            f"--num-cpus={settings['num_cpus']}",
            f"--num-gpus={settings.get('num_gpus', 0)}",
            f"--object-store-memory={settings['object_store_memory']}",
            f"--node-ip-address={self.node_ip_address}",
            f"--resources={json.dumps(dict(resources))}",
        ]
        ray_start = [sys.executable, "-m", "ray.scripts.scripts", "start", *start, "--block"]
        hide = ["sh", "-ec", f'{mounts}\nexec "$@"', "sh"]
        self._process = psutil.Popen(
            ["unshare", "--mount", "--propagation", "private", *hide, *ray_start],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def is_alive(self) -> bool:
        """Whether the cluster has it."""
        import ray

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        return any(node["Alive"] and node["NodeManagerAddress"] == self.node_ip_address for node in nodes)

    def check_running(self) -> None:
        """Fail if its processes have ended."""
        assert self._process.poll() is None, f"the node {self.node_ip_address} could not be started"

    def kill(self) -> None:
        """SIGKILL to everything of it, the raylet first."""
        _kill_tree(self._process)


class RayHead:
    """The head of a cluster of one node in processes of its own: it can be killed and started again at its address."""

    def __init__(
        self, *, port: int, cpus: int, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        """`options` are further ones of `ray start`."""
        self.address = f"127.0.0.2:{port}"
        self._command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *(f"--port={port}", f"--num-cpus={cpus}", f"--object-store-memory={STORE_BYTES}"),
            *("--node-ip-address=127.0.0.2", "--include-dashboard=false"),
            f"--ray-client-server-port={find_free_port()}",
            *options,
        ]
        self._variables = dict(variables or {})
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Start it, and return when its control process listens."""
        env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", **self._variables}
        self._process = psutil.Popen(self._command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        host, _, port = self.address.partition(":")
        while True:
            assert self._process.poll() is None, "the head could not be started"
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.1)

    def kill_control_process(self) -> None:
        """SIGKILL to the process that holds the cluster's state; nodes and members are left as they are."""
        assert self._process is not None
        next(one for one in self._process.children(recursive=True) if one.name() == "gcs_server").kill()

    def kill(self) -> None:
        """SIGKILL to everything of it."""
        _kill_tree(self._process)


def _kill_tree(root: psutil.Popen | None) -> None:
    """The raylet first: what runs on the node must notice by itself."""
    if root is None or not root.is_running():
        return
    kill_all(*sorted(root.children(recursive=True), key=lambda one: one.name() != "raylet"), root)
    root.wait()


def kill_all(*processes: psutil.Process) -> None:
    """SIGKILL to each that is still there, in this order."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _held() -> set[str]:
    """What jobs hold on the cluster. The lists of actors and objects are Ray's own: it has no public ones here."""
    import ray
    from ray._private.state import actors
    from ray._private.worker import global_worker

    worker: Any = global_worker
    gc.collect()
    found = {f"actor {one['ActorClassName']} {key}" for key, one in actors().items() if one["State"] != "DEAD"}
    groups = ray.util.placement_group_table()
    found |= {f"placement group {one['name']}" for one in groups.values() if one["state"] != "REMOVED"}
    found |= {f"object {key.decode()}" for key in worker.core_worker.get_all_reference_counts()}
    total, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    num_used = total.get("CPU", 0) - free.get("CPU", 0)
    return found | ({f"{num_used:g} CPUs in use"} if num_used > 0 else set())


def can_hide_folders() -> bool:
    """Whether a FarNode can be started here: by root, outside of strict sandboxes."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@contextmanager
def ray_cluster(*, num_nodes: int = 3, cpus: int = 4, store_bytes: int = STORE_BYTES) -> Iterator[RayCluster]:
    """A cluster for the block. What Ray changes in the environment is put back."""
    with with_environment({}):
        cluster = RayCluster(num_nodes=num_nodes, cpus=cpus, store_bytes=store_bytes)
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def with_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a cluster that this process starts; afterwards all variables are as they were."""
    before = dict(os.environ)
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **variables})
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)

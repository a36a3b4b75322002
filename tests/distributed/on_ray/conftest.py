"""One cluster of three raylets for all tests of this folder; those that kill nodes add the ones they kill."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

from trek.data.execution import running_on
from trek.data.execution.base import Executor
from trek.engines.ray.ray_engine import RayEngine
from trek.testing.ray_cluster import RayCluster, ray_cluster
from trek.testing.shell import Shell

MODEL = Path(__file__).parents[2] / "e2e" / "model"


@pytest.fixture(scope="package")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(num_nodes=3, cpus=4) as running:
        RayEngine(address=running.address).slots()  # connects, before the first test looks at threads
        with warnings.catch_warnings():  # Ray leaves sockets to the garbage collector
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        yield running


@pytest.fixture(scope="module")
def large_node(cluster: RayCluster) -> Iterator[int]:
    """The CPUs of a node that is there for all tests of a file, for work that no other node has room for."""
    cpus = 10
    node = cluster.add_node(cpus=cpus)
    yield cpus
    cluster.kill_node(node)


@pytest.fixture
def on_ray(cluster: RayCluster) -> Iterator[Executor]:
    """Tables are computed by the cluster."""
    with running_on("ray", address=cluster.address) as executor:
        yield executor


@pytest.fixture
def shell(cluster: RayCluster, tmp_path: Path) -> Iterator[Shell]:
    """Commands whose control plane runs trials on the cluster."""
    variables = {"TREK_ENGINE": "ray", "RAY_ADDRESS": cluster.address, "TREK_SLOTS": ""}
    made = Shell(tmp_path / "own-home", tmp_path, MODEL, variables)
    yield made
    made.clean_up()

"""The ray engine on a real cluster of three raylets: the conformance suite, and what only it promises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek[ray]'")

from trek.engines import Engine
from trek.engines.ray.member_actor import FOLDER_PREFIX
from trek.engines.ray.ray_engine import RayEngine
from trek.testing.engine_conformance import EngineConformance
from trek.testing.ray_cluster import RayCluster, ray_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(num_nodes=3, cpus=4) as running:
        RayEngine(address=running.address).slots()  # connects, before the first test looks at threads
        yield running


class TestRayEngine(EngineConformance):
    @pytest.fixture
    def engine(self, cluster: RayCluster) -> Engine:
        return RayEngine(address=cluster.address, warm_start=False)

    def _let_go(self, output_dir: Path) -> None:
        for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/member"):
            (folder / "go").write_text("go")

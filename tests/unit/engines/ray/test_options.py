"""What members take, and what a cluster lacks for them."""

from __future__ import annotations

import pytest

from trek.engines import GangSpec, Role
from trek.engines.ray.options import RayOptions, demands_of, find_missing, num_fitting
from trek.errors import ConfigError


def test_a_worker_takes_what_the_spec_or_the_option_says() -> None:
    spec = GangSpec(["x"], 2, cpus_per_worker=3)
    assert demands_of(spec, RayOptions(), has_gpus=False) == {"worker": [{"CPU": 3.0}] * 2}
    chosen = RayOptions(cpus=1, gpus=0.5, memory_gb=2, resources={"tpu": 1})
    assert demands_of(spec, chosen, has_gpus=False)["worker"][0] == {
        "CPU": 1.0,
        "GPU": 0.5,
        "memory": 2.0 * 2**30,
        "tpu": 1.0,
    }


def test_a_worker_takes_a_gpu_where_there_are_any() -> None:
    spec = GangSpec(["x"], 1)
    assert demands_of(spec, RayOptions(), has_gpus=True)["worker"] == [{"CPU": 1.0, "GPU": 1.0}]
    assert demands_of(spec, RayOptions(gpus=0), has_gpus=True)["worker"] == [{"CPU": 1.0}]


@pytest.mark.parametrize(
    ("demand", "node", "fitting"),
    [
        ({"CPU": 1}, {"CPU": 4}, 4),
        ({"CPU": 2}, {"CPU": 5}, 2),
        ({"CPU": 1, "GPU": 1}, {"CPU": 8, "GPU": 2}, 2),
        ({"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 2}, 1),
        ({"CPU": 1, "GPU": 0.5}, {"CPU": 8, "GPU": 2}, 4),
        ({"CPU": 1, "GPU": 0.1}, {"CPU": 20, "GPU": 1}, 10),
        ({"CPU": 1, "GPU": 1}, {"CPU": 8}, 0),
        ({"CPU": 1, "a100": 1}, {"CPU": 8}, 0),
        ({}, {"CPU": 3}, 3),
    ],
)
def test_a_node_has_a_slot_for_every_worker_that_fits(
    demand: dict[str, float], node: dict[str, float], fitting: int
) -> None:
    assert num_fitting(demand, node) == fitting


def test_members_beside_the_workers_take_no_slot() -> None:
    spec = GangSpec(["x"], 1, roles={"server": Role(["y"], 2)})
    assert demands_of(spec, RayOptions(resources={"tpu": 1}), has_gpus=True)["server"] == [{}, {}]


@pytest.mark.parametrize(
    ("demands", "nodes", "placement", "missing"),
    [
        ([{"CPU": 1}] * 4, [{"CPU": 2}, {"CPU": 2}], "PACK", ""),
        ([{"CPU": 1}] * 5, [{"CPU": 2}, {"CPU": 2}], "PACK", "5 CPU needed, and the cluster has 4 CPU"),
        ([{"GPU": 1}], [{"CPU": 2}], "PACK", "1 GPU needed, and the cluster has 0 GPU"),
        ([{"CPU": 2}] * 2, [{"CPU": 3}, {"CPU": 1}], "PACK", "no node has room for 2 CPU at once"),
        ([{"CPU": 1}] * 3, [{"CPU": 2}, {"CPU": 2}], "STRICT_PACK", "no node has room for 3 CPU at once"),
        ([{"CPU": 1}] * 3, [{"CPU": 2}, {"CPU": 2}], "STRICT_SPREAD", "3 nodes are needed"),
        ([{"memory": 2**31}], [{"memory": 2**30}], "PACK", "2 GB of memory needed, and the cluster has 1 GB"),
    ],
)
def test_what_is_missing_is_said(
    demands: list[dict[str, float]], nodes: list[dict[str, float]], placement: str, missing: str
) -> None:
    found = find_missing(demands, nodes, placement=placement)
    assert found.startswith(missing)
    assert bool(found) == bool(missing)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"placement": "AROUND"}, "placement must be one of PACK, SPREAD, STRICT_PACK, STRICT_SPREAD, got 'AROUND'"),
        ({"cpus": -1}, "cpus must be a number of at least 0, got -1"),
        ({"resources": {"tpu": "many"}}, "tpu must be a number of at least 0, got 'many'"),
        ({"resources": 3}, "resources must be a mapping"),
    ],
)
def test_options_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RayOptions(**settings)  # type: ignore[arg-type]

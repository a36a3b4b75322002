"""Training on the nodes of a Ray cluster: the same results as on this machine, to the bit."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import trek
from trek.testing.elastic_training import check_ledgers, train_with_ledger
from trek.testing.ps_training import check_counts, train_counting
from trek.testing.ray_cluster import RayCluster
from trek.testing.recorded_gang import wait_for
from trek.testing.trials import PointsTrial

HPARAMS = {"global_batch_size": 20, "dropout": 0.2, "momentum": 0.9}


def _fit(name: str, **more: Any) -> trek.Result:
    settings = {"hparams": HPARAMS, "max_length": trek.batches(12), "validation_period": trek.batches(6), **more}
    return trek.fit(PointsTrial, workers=2, name=name, **settings)


def _weights(result: trek.Result) -> dict[str, torch.Tensor]:
    assert result.checkpoint is not None
    return result.checkpoint.state_dict()


def _assert_same(one: trek.Result, other: trek.Result) -> None:
    measured = [row for row in one.metrics if row["group"] != "system"]
    assert measured == [row for row in other.metrics if row["group"] != "system"]
    expected = _weights(one)
    assert expected.keys() == _weights(other).keys()
    assert all(torch.equal(value, _weights(other)[key]) for key, value in expected.items())


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_training_over_nodes_gives_what_local_training_gives(cluster: RayCluster, strategy: str) -> None:
    spread = {"address": cluster.address, "placement": "STRICT_SPREAD"}
    here = _fit("here", strategy=strategy)
    there = _fit("there", strategy=strategy, engine="ray", engine_options=spread)
    _assert_same(here, there)


@pytest.mark.campaign
def test_a_run_that_was_stopped_resumes_on_other_nodes(cluster: RayCluster) -> None:
    options = {"address": cluster.address, "placement": "STRICT_SPREAD"}
    whole = _fit("whole", checkpoint_period=trek.batches(3))
    first = _fit(
        "parts", engine="ray", engine_options=options, checkpoint_period=trek.batches(3),
        hparams={**HPARAMS, "stop_at": 5},
    )  # fmt: skip
    assert first.stop_reason == "preempted"
    packed = {"address": cluster.address, "placement": "STRICT_PACK"}
    again = _fit("parts", engine="ray", engine_options=packed, resume="latest", checkpoint_period=trek.batches(3))
    expected = _weights(whole)
    assert all(torch.equal(value, _weights(again)[key]) for key, value in expected.items())


@pytest.mark.campaign
def test_an_elastic_run_shrinks_with_a_killed_node_and_grows_onto_a_new_one(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Every row is trained once, whichever node was lost."""
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    kept, doomed = cluster.add_node(place=1), cluster.add_node(place=1)
    options = {"address": cluster.address, "resources": {"place": 1}}
    settings = {"workers": (1, 2), "engine": "ray", "engine_options": options, "name": "elastic"}
    with ThreadPoolExecutor(1) as pool:  # nodes are added on the main thread, since Ray sets signal handlers
        training = pool.submit(trek.run, train_with_ledger, str(ledgers), (), 2, 0.1, 1, 1.5, **settings)
        wait_for(lambda: training.done() or len(list(ledgers.glob("*.jsonl"))) == 2)
        cluster.kill_node(doomed)
        added = cluster.add_node(place=1)
        result = training.result()
    sizes = check_ledgers(ledgers, epochs=2)
    for node in (kept, added):
        cluster.kill_node(node)
    assert result["batches"] == 24
    assert [size for size, _ in itertools.groupby(sizes[batch] for batch in sorted(sizes))][-3:] == [2, 1, 2]


@pytest.mark.campaign
def test_a_parameter_server_of_a_killed_node_goes_on_elsewhere(cluster: RayCluster, tmp_path: Path) -> None:
    """Its journal is in a folder that the nodes share; its workers are told where it is now."""
    options = {"address": cluster.address}
    settings = {"workers": 2, "servers": 4, "strategy": "ps", "engine": "ray", "engine_options": options}
    doomed = cluster.add_node()
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(trek.run, train_counting, str(tmp_path), (), 2, 0.2, name="ps", **settings)
        wait_for(lambda: training.done() or bool(_processes_of(doomed, "trek.ps.server_process")))
        cluster.kill_node(doomed)
        check_counts(training.result(), epochs=2)


def _processes_of(node: Any, module: str) -> list[int]:
    """The processes below a node's raylet that run a module."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [one.pid for one in raylet.children(recursive=True) if module in " ".join(one.cmdline())]

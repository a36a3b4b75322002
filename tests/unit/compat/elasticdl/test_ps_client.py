"""ElasticDL's PSClient against real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytest.importorskip("numba")

from trek.compat.elasticdl.layers import Embedding
from trek.compat.elasticdl.ps_client import EmbeddingTableInfo, PSClient, Tensor, build_ps_client
from trek.errors import ConfigError, InputError
from trek.ps.server import Server, listen
from trek.ps.service import Service


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    servers = [Server(Service(), listen(("127.0.0.1", 0), secret=""), secret="") for _ in range(2)]
    yield [f"127.0.0.1:{server.port}" for server in servers]
    for server in servers:
        server.close()


def test_dense_parameters_go_to_the_servers_and_follow_gradients(addresses: list[str]) -> None:
    client = PSClient(addresses)
    weights = {"a": torch.ones(3), "b": torch.zeros(2, 2), "c": torch.full((4,), 2.0)}
    client.partition_dense_parameters(weights)
    assert sorted(name for names in client.ps_to_parameter.values() for name in names) == ["a", "b", "c"]
    for ps_id, names in client.ps_to_parameter.items():
        client.push_dense_parameters([Tensor(name, weights[name]) for name in names], ps_id, 0)
    gradients = [Tensor(name, torch.ones_like(value)) for name, value in weights.items()]
    accepted, version = client.push_gradients(gradients, [], 0.5)
    assert (accepted, version) == (True, 1)
    pulled, uninitialised = client.pull_dense_parameters()
    assert uninitialised == []
    for name, value in weights.items():
        torch.testing.assert_close(pulled[name], value - 0.5)
    client.close()


def test_rows_are_pulled_and_duplicate_ids_are_summed_without_changing_the_input(addresses: list[str]) -> None:
    client = build_ps_client(",".join(addresses))
    assert client is not None
    client.push_dense_parameters([Tensor("bias", torch.zeros(1))], 0)
    client.push_embedding_table_infos([EmbeddingTableInfo("user", 2, "zeros")])
    ids, gradients = [7, 8, 7], torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    before = gradients.clone()
    client.push_gradients([], [Tensor("user", gradients, ids)], learning_rate=1.0)
    rows = client.pull_embedding_vectors("user", [8, 7, 9])
    torch.testing.assert_close(rows, torch.tensor([[-3.0, -4.0], [-6.0, -8.0], [0.0, 0.0]]))
    torch.testing.assert_close(gradients, before)
    client.close()


def test_mistakes_are_named(addresses: list[str]) -> None:
    assert build_ps_client("") is None
    client = PSClient(addresses)
    with pytest.raises(InputError, match="ps_id must be from 0 to 1, got 2"):
        client.push_dense_parameters([], 2)
    client.close()
    with pytest.raises(ConfigError, match="needs a name"):
        Embedding(8)
    with pytest.raises(ConfigError, match="combiner must be one of sum, mean, got 'sqrtn'"):
        Embedding(8, combiner="sqrtn", name="t")

"""Rows on servers as a worker sees them: loading replaces them, and nobody who comes later loads over trained ones."""

from __future__ import annotations

import pytest
import torch

from trek.ps import Client, Rule
from trek.ps.row_prefetch import RowPrefetch
from trek.ps.server_rows import ServerRows
from trek.ps.server_state import Mode
from trek.ps.table_spec import TableSpec

SGD = Rule.named("SGD", lr=1.0)
IDS = torch.tensor([3, -4])


def _rows(client: Client, *, is_leader: bool, is_preparing: bool = False) -> ServerRows:
    prefetch = RowPrefetch(lambda: client)
    rows = ServerRows(client, is_leader=lambda: is_leader, prefetch=prefetch, is_preparing=lambda: is_preparing)
    rows.add([TableSpec.of(name="t", dim=3)])
    return rows


def test_loading_removes_the_other_rows(client: Client) -> None:
    rows = _rows(client, is_leader=True)
    client.push_gradients(rows={"t": ([7], torch.ones(1, 3))}, rule=SGD)
    rows.load("t", IDS, torch.ones(2, 3))
    ids, values = rows.export("t")
    assert dict(zip(ids.tolist(), values.tolist(), strict=True)) == {3: [1.0] * 3, -4: [1.0] * 3}
    rows.clear()
    assert len(rows.export("t")[0]) == 0
    _rows(client, is_leader=False).load("t", IDS, torch.ones(2, 3))
    assert len(rows.export("t")[0]) == 0, "only the leader loads"


def test_rows_that_a_model_brings_along_are_loaded_by_the_first_worker_alone(client: Client) -> None:
    first, late = (_rows(client, is_leader=False, is_preparing=True) for _ in range(2))
    first.load("t", IDS, torch.ones(2, 3))
    client.push_gradients(rows={"t": (IDS, torch.ones(2, 3))}, rule=SGD)
    late.load("t", IDS, torch.ones(2, 3))
    assert torch.equal(client.pull_rows("t", IDS), torch.zeros(2, 3))


@pytest.mark.parametrize("mode", [Mode(grads_to_wait=3)])
def test_pushes_that_wait_for_others_are_applied_when_they_are_told_to(client: Client) -> None:
    before = client.pull_rows("t", IDS)
    for number in (1, 2):
        client.push_gradients(rows={"t": (IDS, torch.full((2, 3), float(number)))}, rule=SGD)
    assert torch.equal(client.pull_rows("t", IDS), before)
    client.flush()
    client.flush()
    assert torch.equal(client.pull_rows("t", IDS), before - 1.5)

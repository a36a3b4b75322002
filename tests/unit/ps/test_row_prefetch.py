"""Rows that are pulled ahead are those that a pull gives, whatever this worker pushes in between."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from trek.ps import Client, Rule
from trek.ps.row_prefetch import RowPrefetch
from trek.ps.server_rows import ServerRows

SGD = Rule.named("SGD", lr=0.5)


def _addresses(client: Client) -> list[str]:
    return [one["address"] for one in client.stats()]


def test_what_was_pulled_ahead_is_taken_and_own_pushes_are_pulled_again(client: Client) -> None:
    prefetch = RowPrefetch(partial(Client, _addresses(client)))
    rows = ServerRows(client, is_leader=lambda: True, prefetch=prefetch)
    random = np.random.default_rng(0)
    batches = [torch.from_numpy(random.integers(-5, 20, 12)) for _ in range(20)]
    distinct = [torch.from_numpy(_distinct(batch)) for batch in batches]
    prefetch.begin({"t": batches[0]})
    for number, ids in enumerate(distinct):
        if number + 1 < len(batches):
            prefetch.begin({"t": batches[number + 1]})
        assert torch.equal(rows.pull("t", ids), client.pull_rows("t", ids))
        prefetch.note_push({"t": ids})
        client.push_gradients(rows={"t": (ids, torch.ones(len(ids), 3))}, rule=SGD)
    assert prefetch.num_taken == len(batches)
    prefetch.close()


def test_other_ids_than_those_pulled_ahead_are_pulled(client: Client) -> None:
    prefetch = RowPrefetch(partial(Client, _addresses(client)))
    rows = ServerRows(client, is_leader=lambda: True, prefetch=prefetch)
    prefetch.begin({"t": torch.tensor([1, 2])})
    assert torch.equal(rows.pull("t", torch.tensor([2, 3])), client.pull_rows("t", [2, 3]))
    prefetch.drop()
    rows.pull("t", torch.tensor([1, 2]))
    assert prefetch.num_taken == 0
    prefetch.close()


def _distinct(ids: torch.Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(list(dict.fromkeys(ids.tolist())), np.int64)

"""Servers and workers killed at random moments: every acknowledged push is in the final state exactly once."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trek.ps import Client, Initial, Rule, TableSpec
from trek.ps.addresses import parse_address
from trek.ps.server import listen
from trek.ps.server_process import serve, warm_up

FORK = multiprocessing.get_context("fork")
SECRET = "the secret of this test's servers"
BATCHES = 8
RULE = Rule.named("SGD", lr=1.0)


class Cluster:
    """Two servers as processes, at fixed ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        probes = [listen(("127.0.0.1", 0), secret=SECRET) for _ in range(2)]
        self.addresses = [f"127.0.0.1:{sockets[0].getsockname()[1]}" for sockets in probes]
        for one in (one for sockets in probes for one in sockets):
            one.close()
        self._processes = [self._start(number) for number in range(2)]

    def _start(self, number: int) -> Any:
        address, folder = parse_address(self.addresses[number]), self._folder / str(number)
        process = FORK.Process(target=serve, args=(address,), kwargs={"secret": SECRET, "folder": folder})
        process.start()
        return process

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].join()
        self._processes[number] = self._start(number)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def train_shard(addresses: list[str], shard: int) -> None:
    """Push every batch of a shard that was not pushed before; each has a row of its own, and one shared with all."""
    source = f"shard/{shard}"
    with Client(addresses, secret=SECRET) as client:
        done = client.progress(prefix=source).get(source, 0)
        for batch in range(done + 1, BATCHES + 1):
            ids = np.array([-1, shard * BATCHES + batch])
            rows = {"t": (ids, torch.ones(2, 3))}
            client.push_gradients({"w": torch.ones(4)}, rows=rows, rule=RULE, source=source, sequence=batch)


def run(folder: Path, *, num_shards: int, num_kills: int, seed: int) -> None:
    rng = random.Random(seed)
    warm_up()
    cluster, killed, shard = Cluster(folder), 0, 0
    try:
        with Client(cluster.addresses, secret=SECRET) as client:
            table = TableSpec.of(name="t", dim=3, initial=Initial(kind="zeros"))
            client.push_model({"w": torch.zeros(4)}, tables=[table])
            while shard < num_shards or killed < num_kills:
                worker = FORK.Process(target=train_shard, args=(cluster.addresses, shard))
                worker.start()
                for _ in range(rng.randrange(3)):
                    time.sleep(rng.random() * 0.02)
                    victim = rng.randrange(3)
                    if victim < 2:
                        cluster.kill(victim)
                    else:
                        worker.kill()
                    killed += 1
                worker.join()
                shard += worker.exitcode == 0
            check(client, shard)
    finally:
        cluster.close()


def check(client: Client, num_shards: int) -> None:
    """Every batch of every shard counts once: in its own row, in the shared row and in the dense parameter."""
    total = num_shards * BATCHES
    own = client.pull_rows("t", np.arange(1, total + 1))
    assert torch.equal(own, torch.full((total, 3), -1.0))
    assert torch.equal(
        client.pull_rows("t", [-1, 0, total + 1]), torch.tensor([-float(total), 0, 0])[:, None].expand(3, 3)
    )
    client.forget_versions()
    assert torch.equal(client.pull_dense()["w"], torch.full((4,), -float(total)))
    assert [one["version"] for one in client.stats()] == [total] * 2


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    run(tmp_path, num_shards=6, num_kills=10, seed=0)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_campaign_of_kills(tmp_path: Path, seed: int) -> None:
    run(tmp_path, num_shards=20, num_kills=60, seed=seed + 1)

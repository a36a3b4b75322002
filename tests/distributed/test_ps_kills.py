"""Servers and workers killed at random moments: every acknowledged push is in the final state exactly once."""

from __future__ import annotations

import multiprocessing
import random
import signal
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
WIDTH = 2000  # so that a journal is full after a few pushes
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
        # A small journal, so that servers are also killed while they replace it by a snapshot.
        options = {"secret": SECRET, "folder": folder, "journal_bytes": 4000}
        process = FORK.Process(target=serve, args=(address,), kwargs=options)
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


def train_shard(addresses: list[str], shard: int, ledger: Path) -> None:
    """Push every batch of a shard that was not pushed before; each has a row of its own, and one shared with all.

    What the servers have acknowledged is noted in the ledger: whoever goes on with the shard must find it applied.
    """
    source = f"shard/{shard}"
    with Client(addresses, secret=SECRET) as client, (ledger / str(shard)).open("a+b", buffering=0) as acknowledged:
        done = client.progress(prefix=f"{source}/").get(f"{source}/", 0)
        acknowledged.seek(0)
        assert done >= len(acknowledged.read()), "an acknowledged push is lost"
        for batch in range(done + 1, BATCHES + 1):
            ids = np.array([-1, shard * BATCHES + batch])
            rows = {"t": (ids, torch.ones(2, 3))}
            client.push_gradients({"w": torch.ones(WIDTH)}, rows=rows, rule=RULE, source=f"{source}/", sequence=batch)
            acknowledged.write(b"." * (batch - acknowledged.tell()))


def run(folder: Path, *, num_shards: int, num_kills: int, seed: int) -> None:
    """Two workers and two servers, of which any is killed now and then, until all shards are trained."""
    rng = random.Random(seed)
    warm_up()
    ledger = folder / "ledger"
    ledger.mkdir()
    cluster, killed, left = Cluster(folder), 0, list(range(num_shards))
    try:
        with Client(cluster.addresses, secret=SECRET) as client:
            table = TableSpec.of(name="t", dim=3, initial=Initial(kind="zeros"))
            client.push_model({"w": torch.zeros(WIDTH)}, tables=[table])
            while left or killed < num_kills:
                if not left:
                    left, num_shards = [num_shards], num_shards + 1
                workers = {shard: start_worker(cluster, shard, ledger) for shard in left[:2]}
                killed += kill_some([*workers.values()], cluster, rng)
                for worker in workers.values():
                    worker.join()
                assert {worker.exitcode for worker in workers.values()} <= {0, -signal.SIGKILL}
                left = [shard for shard in left if shard not in workers or workers[shard].exitcode != 0]
            check(client, num_shards)
    finally:
        cluster.close()


def start_worker(cluster: Cluster, shard: int, ledger: Path) -> Any:
    worker = FORK.Process(target=train_shard, args=(cluster.addresses, shard, ledger))
    worker.start()
    return worker


def kill_some(workers: list[Any], cluster: Cluster, rng: random.Random) -> int:
    """Kill up to three of the processes, at random moments; how many it were."""
    count = rng.randrange(4)
    for _ in range(count):
        time.sleep(rng.random() * 0.02)
        victim = rng.randrange(2 + len(workers))
        if victim < 2:
            cluster.kill(victim)
        else:
            workers[victim - 2].kill()
    return count


def check(client: Client, num_shards: int) -> None:
    """Every batch of every shard counts once: in its own row, in the shared row and in the dense parameter."""
    total = num_shards * BATCHES
    own = client.pull_rows("t", np.arange(1, total + 1))
    assert torch.equal(own, torch.full((total, 3), -1.0))
    assert torch.equal(
        client.pull_rows("t", [-1, 0, total + 1]), torch.tensor([-float(total), 0, 0])[:, None].expand(3, 3)
    )
    client.forget_versions()
    assert torch.equal(client.pull_dense()["w"], torch.full((WIDTH,), -float(total)))
    assert [one["version"] for one in client.stats()] == [total] * 2


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    run(tmp_path, num_shards=6, num_kills=10, seed=0)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_campaign_of_kills(tmp_path: Path, seed: int) -> None:
    run(tmp_path, num_shards=20, num_kills=60, seed=seed + 1)

"""One parameter server, one client: rows per second of pulls and pushes, and the time of a dense parameter.

    python benchmarks/ps/servers.py [--seconds 4] [--servers 1]

Rows of 16 floats, batches of 8,192 distinct ids out of 1 million; the whole contract, with journal. The peer is the Go
server of ElasticDL 0.2.0rc3, as measured on a quiet machine with 2 cores. Its binary needs a Kubernetes API to stay
alive, so it does not run beside this one: the figures are fixed, and comparable on a quiet machine of that kind alone.
How fast memory is differs from hour to hour on a shared machine, so a server that does nothing but the least
(`peers/bare_server.py`) is measured in between: the last column is Trek's speed as a part of its.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch
from peers.bare_server import ADAM, GET_DENSE, PULL, PUT_DENSE, SGD, BareClient

from trek.ps import Client, Rule, TableSpec

ROWS, BATCH, DIM = 1_000_000, 8192, 16
PEER = {"warm pull": 1.71, "push, SGD": 0.99, "push, Adam": 0.16, "cold pull": 0.043}
"""Million rows per second."""
PEER_DENSE_MS = {"push of 4 MB": 11.9, "pull of 4 MB": 15.8}


@contextmanager
def started(count: int, *, journal: bool) -> Iterator[list[str]]:
    """Servers in processes of their own; their addresses."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--folder", folder] if journal else []
        processes, addresses = [], []
        try:
            for number in range(count):
                own = [*options[:1], f"{folder}/{number}"] if journal else []
                command = [sys.executable, "-m", "trek", "ps", "serve", "--port", "0", *own]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                processes.append(process)
                assert process.stdout is not None
                addresses.append(process.stdout.readline().split()[-1])
            yield addresses
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def bare() -> Iterator[BareClient]:
    """The bare server in a process of its own, and its client."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parent / "peers" / "bare_server.py"), f"{folder}/socket"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield BareClient(f"{folder}/socket")
        finally:
            process.kill()
            process.wait()


def best_of(cases: dict[str, Callable[[int], None]], *, seconds: float) -> dict[str, list[float]]:
    """The times of the cases, which alternate."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    until, turn = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for name, case in cases.items():
            for _ in range(3):
                begun = time.perf_counter()
                case(turn)
                times[name].append(time.perf_counter() - begun)
                turn += 1
    return times


def measure(addresses: list[str], least: BareClient, *, seconds: float) -> None:
    """Print what the servers do, and what the bare one does."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.arange(-ROWS // 2, ROWS // 2))
    batches = [rng.choice(ids, BATCH, replace=False) for _ in range(64)]
    gradients = torch.from_numpy(rng.standard_normal((BATCH, DIM)).astype(np.float32))
    dense = torch.ones(1_000_000)
    rules = {"sgd": Rule.named("SGD", lr=0.1), "adam": Rule.named("Adam")}
    client = Client(addresses)
    client.push_model({"dense": dense}, tables=[TableSpec(name=name, dim=DIM) for name in rules])
    for name, rule in rules.items():
        for part in np.array_split(ids, 20):
            client.push_gradients(rows={name: (part, torch.zeros(len(part), DIM))}, rule=rule)
    none, out = np.empty(0, np.int64), np.empty((BATCH, DIM), np.float32)
    for part in np.array_split(ids, 20):
        for what in (SGD, ADAM):
            least.ask(what, part, np.zeros((len(part), DIM), np.float32))
    bare_cases: dict[str, Callable[[int], None]] = {
        "warm pull": lambda turn: least.ask(PULL, batches[turn % 64], into=out),
        "push, SGD": lambda turn: least.ask(SGD, batches[turn % 64], gradients.numpy()),
        "push, Adam": lambda turn: least.ask(ADAM, batches[turn % 64], gradients.numpy()),
        "push of 4 MB": lambda turn: least.ask(PUT_DENSE, none, dense.numpy()),
        "pull of 4 MB": lambda turn: least.ask(GET_DENSE, none, into=dense_out),
    }
    dense_out = np.empty(len(dense), np.float32)
    cases: dict[str, Callable[[int], None]] = {
        "warm pull": lambda turn: client.pull_rows("sgd", batches[turn % 64]),
        "push, SGD": lambda turn: push(client, "sgd", batches[turn % 64], gradients, rules["sgd"]),
        "push, Adam": lambda turn: push(client, "adam", batches[turn % 64], gradients, rules["adam"]),
        "cold pull": lambda turn: client.pull_rows("sgd", batches[turn % 64] + ROWS * (turn + 1)),
        "push of 4 MB": lambda turn: push_dense(client, dense, rules["sgd"]),
        "pull of 4 MB": lambda turn: pull_dense(client),
    }
    bare_names = {name: f"{name} (bare)" for name in bare_cases}
    times = best_of({**cases, **{bare_names[name]: case for name, case in bare_cases.items()}}, seconds=seconds)
    for name in cases:
        took, least_took = times[name], times.get(bare_names.get(name, ""))
        of_bare = f", {median(least_took) / median(took):.2f} of the bare server" if least_took else ""
        if name in PEER:
            rates = [BATCH / one / 1e6 for one in (median(took), min(took))]
            told = f"{rates[0]:6.2f} M rows/s (best {rates[1]:.2f}), {rates[0] / PEER[name]:6.1f} x the peer"
        else:
            ratio = 1e3 * median(took) / PEER_DENSE_MS[name]
            told = f"{1e3 * median(took):6.2f} ms (best {1e3 * min(took):.2f}), {ratio:6.2f} x the peer's time"
        print(f"{name:13} {told}{of_bare}")
    client.close()


def push(client: Client, table: str, ids: np.ndarray, gradients: torch.Tensor, rule: Rule) -> None:
    """One push of rows."""
    client.push_gradients(rows={table: (ids, gradients)}, rule=rule)


def push_dense(client: Client, dense: torch.Tensor, rule: Rule) -> None:
    """One push of a dense gradient."""
    client.push_gradients({"dense": dense}, rule=rule)


def pull_dense(client: Client) -> None:
    """One pull of a dense parameter that changed."""
    client.forget_versions()
    client.pull_dense()


def main() -> None:
    """With and without a journal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--servers", type=int, default=1)
    options = parser.parse_args()
    for journal in (True, False):
        print(f"-- {options.servers} server(s), {'with' if journal else 'without'} journal")
        with started(options.servers, journal=journal) as addresses, bare() as least:
            measure(addresses, least, seconds=options.seconds)


if __name__ == "__main__":
    main()

"""Two parameter servers compared with one, by several clients at once, where there are cores for all of them.

    python benchmarks/ps/scaling.py [--clients 4] [--seconds 4] [--rounds 3]

Rows of 16 floats, batches of 8,192 distinct ids out of 1 million; the whole contract, with journal. Every client is a
process. One and two servers alternate; printed are rows per second of all clients together, and their ratio.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from servers import BATCH, DIM, ROWS, push, started

from trek.ps import Client, Rule, TableSpec

RULES = {"sgd": Rule.named("SGD", lr=0.1), "adam": Rule.named("Adam")}


def fill(addresses: list[str]) -> None:
    """Make the tables, with all their rows."""
    client = Client(addresses)
    client.push_model({}, tables=[TableSpec(name=name, dim=DIM) for name in RULES])
    for name, rule in RULES.items():
        for part in np.array_split(np.arange(ROWS), 20):
            client.push_gradients(rows={name: (part, torch.zeros(len(part), DIM))}, rule=rule)
    client.close()


def work(addresses: list[str], seed: int, seconds: float, barrier: Any, results: Any) -> None:
    """One client: how many rows it had done in each case, and in how many seconds."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    batches = [rng.choice(ROWS, BATCH, replace=False) for _ in range(16)]
    gradients = torch.from_numpy(rng.standard_normal((BATCH, DIM)).astype(np.float32))
    client = Client(addresses)
    cases: dict[str, Callable[[np.ndarray], Any]] = {
        "warm pull": lambda ids: client.pull_rows("sgd", ids),
        "push, SGD": lambda ids: push(client, "sgd", ids, gradients, RULES["sgd"]),
        "push, Adam": lambda ids: push(client, "adam", ids, gradients, RULES["adam"]),
    }
    rates = {}
    for name, case in cases.items():
        case(batches[0])
        barrier.wait()
        begun, turn = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            case(batches[turn % len(batches)])
            turn += 1
        rates[name] = turn * BATCH / (time.monotonic() - begun)
    client.close()
    results.put(rates)


def measure(num_servers: int, *, clients: int, seconds: float) -> dict[str, float]:
    """Rows per second of all clients together, by case."""
    context = multiprocessing.get_context("spawn")
    with started(num_servers, journal=True) as addresses:
        fill(addresses)
        barrier, results = context.Barrier(clients), context.Queue()
        members = [
            context.Process(target=work, args=(addresses, seed, seconds, barrier, results)) for seed in range(clients)
        ]
        for member in members:
            member.start()
        rates = [results.get() for _ in members]
        for member in members:
            member.join()
    return {name: sum(one[name] for one in rates) for name in rates[0]}


def main() -> None:
    """One and two servers, in turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for count, rates in found.items():
            rates.append(measure(count, clients=options.clients, seconds=options.seconds))
    for name in found[1][0]:
        one, two = (median(rates[name] for rates in found[count]) for count in (1, 2))
        print(f"{name:11} {one / 1e6:6.2f} -> {two / 1e6:6.2f} M rows/s: two servers are {two / one:.2f} x one")


if __name__ == "__main__":
    main()

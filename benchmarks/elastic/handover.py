"""The state that a worker gets when it joins, beside torch's `broadcast_object_list`: seconds, and memory in addition.

Run with `python benchmarks/elastic/handover.py [MEBIBYTES]`. Each way has two fresh processes, since a peak of memory
is that of the life of a process.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import trek

MIB = 1 << 20


def ours(tr: trek.Traveler, value: Any) -> Any:
    """Trek's."""
    return tr.strategy.broadcast(value)


def torchs(tr: trek.Traveler, value: Any) -> Any:
    """The peer's, which pickles."""
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def give(tr: trek.Traveler, size_mib: int, way: Callable[[trek.Traveler, Any], Any]) -> list[list[float]]:
    """Of each rank: seconds, and MiB by which its peak of memory grew."""
    count = size_mib * MIB // 4 // 16
    value = {f"layer.{i}": torch.full((count,), float(i)) for i in range(16)} if tr.world.is_leader else None
    tr.barrier()
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    got = way(tr, value)
    took = time.perf_counter() - started
    if float(got["layer.7"][-1]) != 7.0:
        raise SystemExit("the value did not arrive")
    return tr.strategy.gather([took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024])


def main(size_mib: int = 256, rounds: int = 5) -> None:
    """Both ways in turn; the best round of each."""
    best: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        for way in (ours, torchs):
            ranks = trek.run(give, size_mib, way, workers=2, strategy="ddp", show_progress=False)
            if number == 0 or ranks[1][0] < best[way.__name__][1][0]:
                best[way.__name__] = ranks
    for name, ((_, leader_mib), (took, other_mib)) in best.items():
        print(f"{name}: {took:.3f} s; the leader needs {leader_mib:.0f} MiB more, the other rank {other_mib:.0f}")
    print(f"ratio of seconds: {best['ours'][1][0] / best['torchs'][1][0]:.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

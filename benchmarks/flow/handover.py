"""Time from prepared rows to the first training step on them, passed on disk and in memory by the same flow.

    python benchmarks/flow/handover.py [--dataset mnist] [--rounds 5]

Prints one JSON object. The time is measured from when the prepared rows are in the memory of the step that made them to
the end of the first training step of the model of examples/mnist. On disk, they are written with checksums, synced and
mapped; in memory, they are written once to shared memory and mapped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import trek
from trek.system.home import trek_home

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mnist"
sys.path.insert(0, str(EXAMPLE))


def prepare(name: str) -> tuple[Any, Any, float]:
    """The preparation of the example, computed completely, and the time at which it was done."""
    from flow import prepare as prepare_lazily

    train, test = (table.cache() for table in prepare_lazily(name))
    return train, test, time.time()


def first_step(train: Any, test: Any, ready_at: float) -> float:
    """Milliseconds from `ready_at` to the end of the first training step."""
    from flow import HPARAMS, PreparedTrial

    ended: list[float] = []

    class Timed(PreparedTrial):
        def evaluate_batch(self, batch: Any, model: Any) -> Any:
            ended.append(time.time())  # validation follows the only training step
            return super().evaluate_batch(batch, model)

    hparams = {**HPARAMS, "global_batch_size": 64, "learning_rate": 0.04}
    trek.fit(Timed, hparams=hparams, data={"train": train, "test": test}, max_length=trek.batches(1))
    return (ended[0] - ready_at) * 1000


def measure(handover: str, *, dataset: str, rounds: int) -> list[float]:
    """Milliseconds of each round, without the first one, in which libraries are loaded."""
    flow = trek.Flow("handover")
    times = []
    last = None
    for _ in range(rounds + 1):  # in sequence in one run, so that one worker with loaded libraries does all
        train, test, ready_at = flow.step(prepare, dataset, outputs=3, cache=False, after=[last] if last else [])
        last = flow.step(first_step, train, test, ready_at, handover=handover, cache=False)
        times.append(last)
    run = flow.run(parallel=1, show=False)
    return [run[one] for one in times[1:]]


def main() -> None:
    """Measure both and print them with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    trek.data.open(args.dataset, split="train")  # fetched before TREK_HOME changes
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("TREK_DATA_MIRROR", str(trek_home() / "data"))
        os.environ["TREK_HOME"] = home
        found = {way: measure(way, dataset=args.dataset, rounds=args.rounds) for way in ("disk", "memory")}
    middle = {way: statistics.median(times) for way, times in found.items()}
    result = {
        "dataset": args.dataset,
        "milliseconds": {way: [round(one, 1) for one in times] for way, times in found.items()},
        "median": {way: round(one, 1) for way, one in middle.items()},
        "disk_over_memory": round(middle["disk"] / middle["memory"], 2),
        "target_ratio": 1.5,
        "versions": {"torch": torch.__version__, "trek": trek.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

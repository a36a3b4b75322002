"""From the call to the first trained step: `trek.run` on Ray beside Ray Train, on one cluster, in turns.

    python benchmarks/ray/gang_start.py [--rounds 3] [--workers 2] [--cold]

Prints one JSON object. Trek forks workers from a process on the node that has imported torch (`--cold` switches that
off), so its first round, which is not counted, is slower than the others; Ray Train's is, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from peer import environment, train_on_ray, train_on_trek

WARM_UP = 1
NUM_STEPS = 20
"""How many steps each run has; only the time to the first one counts."""


def seconds_to_first_step(run: Any, *, workers: int) -> float:
    """Seconds from the call until the leader has trained a step."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "first"
        began = time.time()
        run(workers=workers, num_steps=NUM_STEPS, mark=str(mark))
        return float(mark.read_text()) - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    if args.cold:
        os.environ["TREK_WARM_START"] = "0"
    ray.init("local", num_cpus=args.workers + 4, include_dashboard=False, log_to_driver=False)
    taken: dict[str, list[float]] = {"trek": [], "ray_train": []}
    for number in range(args.rounds + WARM_UP):
        for name, run in (("trek", train_on_trek), ("ray_train", train_on_ray)):
            seconds = seconds_to_first_step(run, workers=args.workers)
            if number >= WARM_UP:
                taken[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    result = {
        "seconds_to_first_step": medians,
        "ratio": medians["trek"] / medians["ray_train"],
        "target": 0.7,
        "workers": args.workers,
        "rounds": args.rounds,
        "is_warm": not args.cold,
        "torch": torch.__version__,
        **environment(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

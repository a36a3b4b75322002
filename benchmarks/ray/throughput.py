"""Steps per second of data-parallel training: `trek.run` on Ray beside Ray Train, on one cluster, in turns.

    python benchmarks/ray/throughput.py [--rounds 3] [--steps 400] [--workers 2]

Prints one JSON object. The first ten steps of each run are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import ray
from peer import environment, train_on_ray, train_on_trek


def steps_per_s(run: Any, *, workers: int, num_steps: int) -> float:
    """The rate that the leader measured."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "mark"
        run(workers=workers, num_steps=num_steps, mark=str(mark))
        return float(mark.with_suffix(".rate").read_text())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    ray.init("local", num_cpus=args.workers + 4, include_dashboard=False, log_to_driver=False)
    rates: dict[str, list[float]] = {"trek": [], "ray_train": []}
    for _ in range(args.rounds):
        for name, run in (("trek", train_on_trek), ("ray_train", train_on_ray)):
            rates[name].append(steps_per_s(run, workers=args.workers, num_steps=args.steps))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    result = {
        "steps_per_s": medians,
        "ratio": medians["trek"] / medians["ray_train"],
        "target": 1.0,
        "workers": args.workers,
        "steps": args.steps,
        "rounds": args.rounds,
        **environment(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

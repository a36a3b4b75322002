"""What a step costs beside its own work: many trivial steps, run and then found kept, beside Prefect where installed.

    python benchmarks/flow/step_overhead.py [--steps 10000] [--chain]

Prints one JSON object. Ours start worker processes and keep every result by content; Prefect's default runner calls the
functions in threads of one process and keeps nothing, so the comparison is in its favour.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from typing import Any

import trek


def increment(number: int) -> int:
    """The trivial step."""
    return number + 1


def build(num_steps: int, *, is_chain: bool) -> tuple[trek.Flow, Any]:
    """A flow of independent steps, or of steps that wait for one another."""
    flow = trek.Flow("overhead")
    if not is_chain:
        return flow, flow.map(increment, range(num_steps))[-1]
    last = flow.step(increment, 0)
    for _ in range(num_steps - 1):
        last = flow.step(increment, last)
    return flow, last


def measure_trek(num_steps: int, *, is_chain: bool) -> dict[str, float]:
    """Milliseconds a step, run and kept."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["TREK_HOME"] = home
        flow, last = build(num_steps, is_chain=is_chain)
        times = []
        for _ in range(2):
            began = time.perf_counter()
            run = flow.run(show=False)
            times.append((time.perf_counter() - began) / num_steps * 1000)
            assert run[last] == num_steps
    return {"run_ms": times[0], "kept_ms": times[1]}


def measure_prefect(num_steps: int) -> dict[str, Any]:
    """The same with Prefect, fewer steps, since each costs more."""
    try:
        from prefect import flow, task
    except ImportError:
        return {"skipped": "prefect is not installed"}

    work = task(increment)

    @flow
    def many() -> list[int]:
        return [future.result() for future in [work.submit(number) for number in range(num_steps)]]

    began = time.perf_counter()
    many()
    taken = (time.perf_counter() - began) / num_steps * 1000
    return {"run_ms": taken, "steps": num_steps, "version": importlib.metadata.version("prefect")}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--chain", action="store_true")
    args = parser.parse_args()
    result = {
        "steps": args.steps,
        "promised_run_ms": 2.0,
        "trek": measure_trek(args.steps, is_chain=args.chain),
        "prefect": measure_prefect(min(args.steps, 200)),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

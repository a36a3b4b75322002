"""Trivial tasks with Prefect's default runner: milliseconds per task, as JSON."""

from __future__ import annotations

import json
import sys
import time

from prefect import flow, task


@task
def increment(number: int) -> int:
    """The trivial task."""
    return number + 1


@flow
def many(num_steps: int) -> list[int]:
    """All at once."""
    return [future.result() for future in [increment.submit(number) for number in range(num_steps)]]


if __name__ == "__main__":
    num_steps = int(sys.argv[1])
    many(1)  # starts Prefect's server
    began = time.perf_counter()
    assert many(num_steps)[-1] == num_steps
    taken = time.perf_counter() - began
    print(json.dumps({"run_ms": taken / num_steps * 1000}))

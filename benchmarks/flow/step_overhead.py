"""Overhead of a step: many trivial steps, run and then read from the cache, compared with Metaflow and Prefect.

    python benchmarks/flow/step_overhead.py [--steps 10000] [--chain] [--peers PYTHON]

Prints one JSON object. Peers run if they are installed in this Python, or in the one given by --peers. Trek forks a
process for each step and stores every result by content; Metaflow starts a process for each step and stores results;
Prefect's default runner calls functions in threads and stores nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trek

PEERS = Path(__file__).parent / "peers"


def increment(number: int) -> int:
    """The trivial step."""
    return number + 1


def build(num_steps: int, *, is_chain: bool) -> tuple[trek.Flow, Any]:
    """A flow of independent steps, or of a chain of steps."""
    flow = trek.Flow("overhead")
    if not is_chain:
        return flow, flow.map(increment, range(num_steps))[-1]
    last = flow.step(increment, 0)
    for _ in range(num_steps - 1):
        last = flow.step(increment, last)
    return flow, last


def measure_trek(num_steps: int, *, is_chain: bool) -> dict[str, float]:
    """Milliseconds per step, run and read from the cache."""
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


def measure_metaflow(num_steps: int, python: str) -> dict[str, Any]:
    """The same with Metaflow: the additional time of a wide flow over a narrow one, per step."""
    script = [python, str(PEERS / "metaflow_steps.py"), "--quiet", "--no-pylint", "run", "--num_steps"]
    seconds = []
    for width in (1, num_steps + 1):
        began = time.perf_counter()
        if error := run_peer([*script, str(width)])[1]:
            return {"skipped": error}
        seconds.append(time.perf_counter() - began)
    return {"run_ms": (seconds[1] - seconds[0]) / num_steps * 1000, "steps": num_steps, **version("metaflow", python)}


def measure_prefect(num_steps: int, python: str) -> dict[str, Any]:
    """The same with Prefect."""
    output, error = run_peer([python, str(PEERS / "prefect_steps.py"), str(num_steps)])
    return {"skipped": error} if error else {**json.loads(output), "steps": num_steps, **version("prefect", python)}


def run_peer(command: list[str]) -> tuple[str, str | None]:
    """The last line of its output, and the error if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PREFECT_HOME": folder, "PREFECT_LOGGING_LEVEL": "CRITICAL", "METAFLOW_USER": "benchmark"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""]
    return lines[-1], None if done.returncode == 0 else lines[-1]


def version(package: str, python: str) -> dict[str, str]:
    """The version of a package in another Python."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return {"version": subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--chain", action="store_true")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    args = parser.parse_args()
    ours = measure_trek(args.steps, is_chain=args.chain)
    peers = {
        "metaflow": measure_metaflow(min(args.steps, 20), args.peers),
        "prefect": measure_prefect(min(args.steps, 200), args.peers),
    }
    result = {
        "steps": args.steps,
        "target_run_ms": 2.0,
        "trek": {**ours, "version": trek.__version__},
        **peers,
        "peer_over_trek": {name: one["run_ms"] / ours["run_ms"] for name, one in peers.items() if "run_ms" in one},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

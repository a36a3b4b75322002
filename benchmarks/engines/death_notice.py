"""How long the local engine takes to detect that a member was killed, and to start and end a gang.

    python benchmarks/engines/death_notice.py [--rounds 20] [--workers 2]

Prints one JSON object; the contract of engines is to detect an exit within 100 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time

from trek.engines import GangSpec, open_engine

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def notice_ms(num_workers: int) -> float:
    """Milliseconds from SIGKILL to the detection of the failure."""
    gang = open_engine("local").start(GangSpec(SLEEP, num_workers))
    victim = gang.pids[num_workers - 1]
    began = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    assert gang.wait_first_failure(10) is not None
    taken = time.perf_counter() - began
    gang.stop(grace_s=1)
    return taken * 1000


def start_to_end_ms(num_workers: int) -> float:
    """Milliseconds to run `true` in every member."""
    began = time.perf_counter()
    gang = open_engine("local").start(GangSpec(["true"], num_workers))
    gang.wait(10)
    taken = time.perf_counter() - began
    gang.stop()
    return taken * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    notices = [notice_ms(args.workers) for _ in range(args.rounds)]
    runs = [start_to_end_ms(args.workers) for _ in range(args.rounds)]
    result = {
        "workers": args.workers,
        "rounds": args.rounds,
        "death_notice_ms": {"median": statistics.median(notices), "max": max(notices), "target": 100},
        "run_true_ms": {"median": statistics.median(runs), "max": max(runs)},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

"""How long a search of many trials takes without training: the cost of the searcher itself.

    python benchmarks/control/simulated_search.py --trials 10000

Target: less than 5 s.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from typing import Any

from trek.search import simulate

SPACE = {"lr": {"type": "log", "minval": -4, "maxval": -1}, "units": {"type": "int", "minval": 1, "maxval": 64}}
SEARCHERS: dict[str, dict[str, Any]] = {
    "random": {"name": "random"},
    "asha": {"name": "asha"},
    "asha, promoting": {"name": "asha", "promote": True},
    "adaptive_asha": {"name": "adaptive_asha"},
    "adaptive_asha, conservative": {"name": "adaptive_asha", "mode": "conservative"},
}
TARGET_S = 5.0


def metric(hparams: Mapping[str, Any], length: int) -> float:
    """A function with one minimum; its offset shrinks with the length of the trial."""
    return abs(math.log10(hparams["lr"]) + 2.3) + abs(hparams["units"] - 40) / 64 + 2 / length


def main() -> None:
    """Simulate with each searcher and print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    trials = parser.parse_args().trials
    for name, searcher in SEARCHERS.items():
        settings = {**searcher, "max_trials": trials, "max_length": 1024}
        start = time.perf_counter()
        result = simulate({"searcher": settings, "hyperparameters": SPACE}, metric, seed=0)
        seconds = time.perf_counter() - start
        ratio = f"{seconds / TARGET_S:.2f} of the target of {TARGET_S:g} s"
        print(f"{name}: {len(result.trials)} trials in {seconds:.2f} s, {ratio}")


if __name__ == "__main__":
    main()

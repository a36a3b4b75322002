"""How long a search of many trials takes when nothing is trained: what the searcher itself costs.

    python benchmarks/control/simulated_search.py --trials 10000

Asked for: less than 5 s.
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
ASKED_S = 5.0


def metric(hparams: Mapping[str, Any], length: int) -> float:
    """A valley that is seen better the longer a trial trains."""
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
        asked = f"{seconds / ASKED_S:.2f} of the {ASKED_S:g} s asked"
        print(f"{name}: {len(result.trials)} trials in {seconds:.2f} s, {asked}")


if __name__ == "__main__":
    main()

"""What elastic training costs while nothing happens: the time of a step beside plain ddp, and of `exact` beside `fast`.

Two workers train a small CNN; the three kinds alternate, and the best times are compared.

    python benchmarks/elastic/overhead.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trek

WARM_UP, EPOCHS = 20, 15
KINDS: dict[str, dict[str, Any]] = {
    "ddp": {"workers": 2},
    "fast": {"workers": (1, 2)},
    "exact": {"workers": (1, 2), "elastic": "exact"},
}


def timed_loop(tr: trek.Traveler) -> float:
    """Seconds per step, after a warm-up."""
    x, y = torch.randn(2048, 1, 28, 28), torch.randint(10, (2048,))
    model = tr.add_model(
        nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * 12 * 12, 64), nn.ReLU(), nn.Linear(64, 10),
        )
    )  # fmt: skip
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01))
    data = tr.add_loader((x, y), global_batch_size=128, shuffle=True)
    times = []
    for _ in tr.epochs(EPOCHS):
        for inputs, labels in tr.train(data):
            times.append(time.perf_counter())
            tr.backward(F.cross_entropy(model(inputs), labels))
            tr.step(optimizer)
    return (times[-1] - times[WARM_UP]) / (len(times) - WARM_UP - 1)


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, given in KINDS.items():
            times[name].append(trek.run(timed_loop, show_progress=False, **given))
    best = {name: min(values) for name, values in times.items()}
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, 2 workers, {1e3 * best['ddp']:.2f} ms a step with ddp")
    print(f"elastic / ddp {best['fast'] / best['ddp']:.3f}, exact / fast {best['exact'] / best['fast']:.3f}")


if __name__ == "__main__":
    main()

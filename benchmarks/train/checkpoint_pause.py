"""How long a checkpoint of a 100 M-parameter model pauses training, compared with one copy of its state in memory.

python benchmarks/train/checkpoint_pause.py [--millions 100] [--repeats 4]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import trek


def main() -> None:
    """Time both in turn; the best time counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TREK_HOME"] = folder
        copies, pauses = measure(Path(folder), millions=args.millions, repeats=args.repeats)
    print(f"{args.millions} M parameters with momentum, best of {args.repeats}")
    print(f"one copy in memory {min(copies) * 1e3:8.0f} ms")
    print(f"pause              {min(pauses) * 1e3:8.0f} ms, {min(pauses) / min(copies):.2f} of a copy")


def measure(folder: Path, *, millions: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of plain copies and of `save()`."""
    copies, pauses = [], []
    with trek.Traveler(world=trek.World(), checkpoint_dir=folder / "checkpoints", show_progress=False) as tr:
        layers = [nn.Linear(1000, 1000, bias=False) for _ in range(millions)]
        model = tr.add_model(nn.Sequential(*layers))
        optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        tr.step(optimizer)
        moments = [state["momentum_buffer"] for state in optimizer.state.values()]
        for _ in range(repeats):
            start = time.perf_counter()
            held = [t.detach().clone() for t in [*model.parameters(), *moments]]
            copies.append(time.perf_counter() - start)
            del held
            start = time.perf_counter()
            tr.save()
            pauses.append(time.perf_counter() - start)
            tr.archive.wait()
    return copies, pauses


if __name__ == "__main__":
    main()

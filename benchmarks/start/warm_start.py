"""From the call to the first step of two processes: `trek.fit(workers=2)`, cold, warm and fresh, beside torchrun.

    python benchmarks/start/warm_start.py [--repeats 5]

What counts, on rank 0: until its first optimizer step is done and the second batch begins.

- torchrun: from starting the command. Nothing of it stays between two runs.
- trek.fit: from the call. The program that calls has imported torch and Trek, as one that defines a Trial has.
  "cold" is the first call of all, which also starts the warm parent; "warm" are the calls after it; "fresh" are calls
  with TREK_WARM_START=0. The same program is started anew for each round.

All train the same linear model with AdamW, one thread per process, and take turns. The median and the best are told,
and ratios to torchrun's median.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WORKERS = 2


def hand_written() -> None:
    """Run under torchrun."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        tell_once()
    dist.destroy_process_group()


_has_told = False


def tell_once() -> None:
    """Write down when the first step of rank 0 was done."""
    global _has_told
    if os.environ["RANK"] == "0" and not _has_told:
        _has_told = True
        Path(os.environ["BENCH_OUT"]).write_text(str(time.time()))


def calls(repeats: int) -> None:
    """Call trek.fit several times in one program; prints the seconds of each."""
    import torch

    import trek

    class Small(trek.Trial):
        """A linear model."""

        def build_model(self) -> Any:
            return torch.nn.Linear(8, 1)

        def optimizer(self, model: Any) -> Any:
            return torch.optim.AdamW(model.parameters())

        def build_training_data_loader(self) -> Any:
            data = torch.utils.data.TensorDataset(torch.randn(64, 8))
            return trek.DataLoader(data, batch_size=self.context.get_per_slot_batch_size())

        build_validation_data_loader = build_training_data_loader

        def train_batch(self, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 1:
                tell_once()
            return {"loss": model(batch[0]).square().mean()}

        def evaluate_batch(self, batch: Any, model: Any) -> dict[str, Any]:
            return {"validation_loss": model(batch[0]).square().mean()}

    taken = []
    for _ in range(repeats):
        start = time.time()
        trek.fit(
            Small,
            hparams={"global_batch_size": 16},
            max_length=trek.batches(4),
            workers=WORKERS,
            show_progress=False,
        )
        taken.append(float(Path(os.environ["BENCH_OUT"]).read_text()) - start)
    print(json.dumps(taken))


def run(arguments: list[str], *, folder: Path, **variables: str) -> str:
    """Run a command to its end; what it printed."""
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "BENCH_OUT": str(folder / "out"),
        "TREK_HOME": str(folder),
        **variables,
    }
    done = subprocess.run([sys.executable, *arguments], check=True, env=env, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def time_torchrun(folder: Path) -> float:
    """Seconds to the first step."""
    start = time.time()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORKERS}"]
    run([*launcher, __file__, "--contender", "torchrun"], folder=folder)
    return float((folder / "out").read_text()) - start


def time_fit(folder: Path, *, num_calls: int, **variables: str) -> list[float]:
    """Seconds to the first step of each call."""
    script = [__file__, "--contender", "fit", "--repeats", str(num_calls)]
    told: list[float] = json.loads(run(script, folder=folder, **variables).splitlines()[-1])
    return told


def main() -> None:
    """Run all in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        hand_written() if args.contender == "torchrun" else calls(args.repeats)
        return
    seconds: dict[str, list[float]] = {
        "torchrun": [],
        "trek.fit, fresh": [],
        "trek.fit, cold": [],
        "trek.fit, warm": [],
    }
    for _ in range(args.repeats):
        # A home of its own, so that the first call finds no parent; the parent ends when its folder is gone.
        with tempfile.TemporaryDirectory() as name:
            seconds["torchrun"].append(time_torchrun(Path(name)))
            seconds["trek.fit, fresh"] += time_fit(Path(name), num_calls=1, TREK_WARM_START="0")
            cold, *warm = time_fit(Path(name), num_calls=4)
            seconds["trek.fit, cold"].append(cold)
            seconds["trek.fit, warm"] += warm
    peer = statistics.median(seconds["torchrun"])
    print(f"{'':20}{'median s':>10}{'best s':>10}{'of torchrun':>13}")
    for name, taken in seconds.items():
        median = statistics.median(taken)
        print(f"{name:20}{median:10.2f}{min(taken):10.2f}{median / peer:13.2f}")


if __name__ == "__main__":
    main()

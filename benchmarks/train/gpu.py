"""The MNIST CNN on one GPU, batch 64: Trek compared with hand-written loops, eager and as a CUDA graph.

python benchmarks/train/gpu.py [--rows 60000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TREK_HOME", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.nn.functional as F
from one_process import BATCH, BenchTrial, Clock, RowByRow, make_data, make_model
from torch.utils.data import DataLoader, TensorDataset

import trek


def hand_dataloader(data: Any) -> float:
    """The usual loop."""
    model = make_model("cnn").cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, BATCH, shuffle=True, pin_memory=True)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def hand_on_device(data: TensorDataset) -> float:
    """Data on the GPU, indexed directly."""
    model = make_model("cnn").cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = (t.cuda() for t in data.tensors)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for rows in torch.randperm(len(images), device="cuda").split(BATCH):
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def cosine(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    """A learning rate that changes every step."""
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def hand_graph(data: TensorDataset, *, is_scheduled: bool = False) -> float:
    """The whole step as a CUDA graph, in bf16, with data on the GPU; a scheduled rate is kept in a tensor."""
    model = make_model("cnn").cuda()
    if is_scheduled:
        optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.01, device="cuda"), fused=True)
        scheduler = cosine(optimizer, len(data) // BATCH)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = (t.cuda() for t in data.tensors)
    x, y = images[:BATCH].clone(), labels[:BATCH].clone()

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    full = len(images) // BATCH * BATCH
    for rows in torch.randperm(len(images), device="cuda")[:full].split(BATCH):
        x.copy_(images[rows])
        y.copy_(labels[rows])
        graph.replay()
        if is_scheduled:
            scheduler.step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


class ScheduledTrial(BenchTrial):
    """The same with a learning rate that changes every step."""

    def create_lr_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return cosine(optimizer, 2 * self.context.get_hparam("num_batches")), "step"


class SyncedClock(Clock):
    """Syncs with the GPU before reading the time."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        torch.cuda.synchronize()
        super().on_training_epoch_start(epoch_idx)

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        torch.cuda.synchronize()
        super().on_training_epoch_end(epoch_idx)


def trek_fit(data: Any, *, trial: type[trek.Trial] = BenchTrial, **settings: Any) -> float:
    """A Trial with the default reports; times the second epoch, because the first includes warm-up and recording."""
    clock = SyncedClock()
    loader = data if isinstance(data, DataLoader) else trek.DataLoader(data, BATCH, shuffle=True)
    trek.fit(
        trial,
        hparams={"kind": "cnn", "num_batches": len(loader)},
        data={"loader": loader, "clock": clock},
        max_length=trek.epochs(2),
        show_progress=False,
        **settings,
    )
    return clock.seconds


CONTENDERS: dict[str, Callable[[TensorDataset], float]] = {
    "hand-written, DataLoader": hand_dataloader,
    "hand-written, DataLoader, row by row": lambda data: hand_dataloader(RowByRow(data)),
    "hand-written, data on the device": hand_on_device,
    "hand-written CUDA graph, bf16, data on the device": hand_graph,
    "the same with a rate that changes every step": lambda data: hand_graph(data, is_scheduled=True),
    "Trek, torch DataLoader, row by row": lambda data: trek_fit(
        DataLoader(RowByRow(data), BATCH, shuffle=True, pin_memory=True)
    ),
    "Trek": trek_fit,
    "Trek, capture, bf16": lambda data: trek_fit(data, capture=True, precision="bf16"),
    "Trek, capture, bf16, a rate that changes every step": lambda data: trek_fit(
        data, trial=ScheduledTrial, capture=True, precision="bf16"
    ),
    "Trek, capture, bf16, 4 batches per step": lambda data: trek_fit(
        data, capture=True, precision="bf16", accumulate=4
    ),
    "Trek, bf16, 4 batches per step": lambda data: trek_fit(data, precision="bf16", accumulate=4),
    "Trek, capture, fp32": lambda data: trek_fit(data, capture=True),
}


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    data = make_data(args.rows)
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(args.repeats):
        for name, contender in CONTENDERS.items():
            times[name].append(contender(data))
    base = min(times["hand-written, DataLoader"])
    print(f"CNN, {args.rows} rows, batch {BATCH}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for name, taken in times.items():
        print(f"{name:52}{args.rows / min(taken):10.0f} samples/s  {base / min(taken):6.2f} of the DataLoader loop")


if __name__ == "__main__":
    main()

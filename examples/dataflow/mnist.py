"""From download to a tested model: data is prepared in parallel and passed to training on disk or in memory.

    python examples/dataflow/mnist.py --by disk      # Parquet shards, one for each rank, and a manifest
    python examples/dataflow/mnist.py --by memory    # one copy in shared memory that all ranks map

Each row is read by exactly one rank in every epoch.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import trek
from trek.data import Handle, Table


def prepare(split: str, *, workers: int) -> Table:
    """The split in one partition per rank, with numbered rows, so that they can be checked."""
    table = trek.data.open("mnist", split=split).partition(workers)
    return table.compute(number_rows, sizes=table.compute(count_rows))


def count_rows(batches: Any, context: Any) -> dict[str, list[int]]:
    """The number of rows in a partition."""
    return {"rows": [sum(len(batch["label"]) for batch in batches)]}


def number_rows(batches: Any, context: Any) -> Any:
    """Add global row numbers; the sizes of the earlier partitions are a side input."""
    row = int(context.inputs["sizes"]["rows"][: context.index].sum())
    for batch in batches:
        yield {**batch, "row": np.arange(row, row + len(batch["label"]))}
        row += len(batch["label"])


def train(traveler: trek.Traveler, train_at: str, test_at: str, epochs: int, audit: str | None) -> float:
    """The loop of one rank. `train_at` and `test_at` are folders or handles of the same data."""
    model = traveler.add_model(nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = traveler.add_optimizer(torch.optim.Adam(model.parameters(), lr=0.001))
    size = traveler.world.size
    train_data = traveler.add_loader(trek.data.open(train_at), batch_size=128 // size, shuffle=True)
    test_data = traveler.add_loader(trek.data.open(test_at), batch_size=1000 // size)
    seen = []
    for _ in traveler.epochs(epochs):
        for images, labels, rows in traveler.train(train_data):
            loss = F.cross_entropy(model(images.float() / 255), labels.long())
            traveler.backward(loss)
            traveler.step(optimizer)
            traveler.log(loss=loss)
            seen.append(rows.clone())
        for images, labels, _ in traveler.validate(test_data):
            traveler.log(accuracy=(model(images.float() / 255).argmax(1) == labels).float().mean())
    if audit:
        np.save(Path(audit) / f"rank-{traveler.world.rank}.npy", torch.cat(seen).numpy())
    return float(traveler.results["valid_accuracy"].iloc[-1])


def main() -> None:
    """Prepare both splits, pass them to training, train and test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", choices=["disk", "memory"], default="disk")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("prepared"))
    parser.add_argument("--audit", type=Path, help="folder to which each rank writes the numbers of the rows it read")
    options = parser.parse_args()
    handles: list[Handle] = []

    def store(split: str) -> str:
        table = prepare(split, workers=options.workers)
        if options.by == "disk":
            table.persist(options.folder / split)
            return str(options.folder / split)
        handles.append(table.share())
        return str(handles[-1])

    audit = str(options.audit) if options.audit else None
    accuracy = trek.run(train, store("train"), store("test"), options.epochs, audit, workers=options.workers, seed=7)
    print(f"by {options.by}, {options.workers} ranks: accuracy {accuracy:.4f}")
    for handle in handles:
        handle.close()


if __name__ == "__main__":
    main()

"""A training against parameter servers that counts itself: which records were trained, and how often.

Every record has a row of its own, which each training of the record lowers by 1: the rows on the servers are
the ledger. `check_counts` proves from them that every record of every epoch was trained once, whoever died.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trek.nn import Embedding
from trek.testing.elastic_training import Fault, Phase, install
from trek.train.traveler import Traveler

NUM_ROWS = 250
GLOBAL_BATCH = 16
NUM_BATCHES = -(-NUM_ROWS // GLOBAL_BATCH)
_ROUNDING = 1e-4


class Counting(nn.Module):
    """The sum of the rows of records, and a parameter that counts samples."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Embedding("seen", dim=1, initial="zeros")
        self.count = nn.Parameter(torch.zeros(1))

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Its gradient is 1 for the row of every record, and the number of records for the count."""
        total: torch.Tensor = self.seen(records).sum() + self.count.sum() * len(records)
        return total


def train_counting(
    tr: Traveler, folder: str, faults: Sequence[Fault] = (), epochs: int = 2, delay_s: float = 0.0
) -> dict[str, Any]:
    """Train on every record; what the servers have in the end, and who took part. `folder` is for the faults."""
    place = Path(folder)
    model = tr.add_model(Counting())
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    data = tr.add_loader((torch.arange(NUM_ROWS),), global_batch_size=GLOBAL_BATCH, shuffle=True)
    held_out = tr.add_loader((torch.arange(NUM_ROWS),), global_batch_size=GLOBAL_BATCH)
    install(tr, faults, place)
    for _ in tr.epochs(epochs):
        for (records,) in tr.train(data):
            _at(faults, "batch", tr, place)
            tr.backward(model(records) / tr.optimization.part[1])  # without the weight of the batch in its step
            _at(faults, "before_sum", tr, place)
            tr.step(optimizer)
            _at(faults, "after_sum", tr, place)
            tr.log(count=1.0)
            time.sleep(delay_s)
        for (records,) in tr.validate(held_out):
            tr.log(seen=model.seen(records).mean())
    strategy: Any = tr.strategy
    ids, rows = strategy.client.export_rows("seen")
    strategy.served.pull()
    return {
        "counts": dict(zip(map(str, ids.tolist()), (-rows[:, 0]).tolist(), strict=True)),
        "samples": -model.count.item(),
        "batches": tr.position.batches,
        "records": tr.position.records,
        "epochs": tr.results.to_dict(orient="records"),
        "workers": tr.world.size,
        "generation": tr.world.generation,
    }


def _at(faults: Sequence[Fault], phase: Phase, tr: Traveler, folder: Path) -> None:
    """A fault of a batch happens there or later: nobody knows which batches a worker gets."""
    for fault in faults:
        if fault.phase == phase and fault.batch <= tr.position.batches and fault.happens(folder):
            fault.happen()


def check_counts(result: dict[str, Any], *, epochs: int) -> None:
    """Raise AssertionError unless every record of every epoch was trained once."""
    wrong = {record: count for record, count in result["counts"].items() if abs(count - epochs) > _ROUNDING}
    assert not wrong, f"trained another number of times than {epochs}: {wrong}"
    assert len(result["counts"]) == NUM_ROWS
    assert abs(result["samples"] - epochs * NUM_ROWS) < _ROUNDING * NUM_ROWS
    assert (result["batches"], result["records"]) == (epochs * NUM_BATCHES, epochs * NUM_ROWS)

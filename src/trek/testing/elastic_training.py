"""An elastic training that writes down what it trains on, and processes of it that die at chosen moments.

Every worker keeps a ledger in a file of its own: which rows it computed of which batch in which generation, and whether
the step was applied there. `check_ledgers` proves from all ledgers together that every row of every epoch was trained
exactly once, whoever died. A fault is a phase, a batch and a worker, by its rank in the gang:

    Fault("kill", phase="some_of_sum", worker=1, batch=7)
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from trek import phases
from trek.train.traveler import Traveler

NUM_ROWS = 96
GLOBAL_BATCH = 8
NUM_BATCHES = NUM_ROWS // GLOBAL_BATCH

Phase = Literal[
    "batch",
    "before_sum",
    "some_of_sum",
    "after_sum",
    "report",
    "save",
    "validation",
    "entering",
    "assembling",
    "connecting",
    "proving",
    "sharing_memory",
    "giving",
    "taking",
    "finish",
]
"""`some_of_sum`: it dies when one of its peers has its gradients and the others do not. `entering` to `taking` are the
steps from a formation to the first batch; a worker that joins is at batch 0 in all of them."""


@dataclass(frozen=True)
class Fault:
    """One process that dies or hangs, once."""

    how: Literal["kill", "stop", "term"]
    phase: Phase
    worker: int
    batch: int = 0

    def happens(self, folder: Path) -> bool:
        """Whether it is this process's turn; never twice, also for whoever replaces it."""
        if int(os.environ.get("TREK_RANK", "0")) != self.worker:
            return False
        try:
            (folder / f"{self.how}-{self.phase}-{self.worker}-{self.batch}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def happen(self) -> None:
        """Die, hang, or ask to leave."""
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}[self.how]
        os.kill(os.getpid(), number)


def train_with_ledger(
    tr: Traveler,
    folder: str,
    faults: Sequence[Fault] = (),
    epochs: int = 2,
    delay_s: float = 0.0,
    num_optimizers: int = 1,
    alone_s: float | None = None,
) -> dict[str, Any]:
    """Train a small model; what it learned. `folder` gets a ledger of every process.

    After each batch it rests for `delay_s`, or for `alone_s` if there is one worker.
    """
    place = Path(folder)
    rows = torch.arange(NUM_ROWS)
    x = torch.linspace(-1, 1, NUM_ROWS)[:, None]
    y = x * 3 + 1
    model = tr.add_model(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
    halves = [model[0].parameters(), model[2].parameters()] if num_optimizers == 2 else [model.parameters()]
    optimizers = [tr.add_optimizer(torch.optim.Adam(half, lr=0.01)) for half in halves]
    for optimizer in optimizers:
        tr.add_scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97), per="batch")
    data = tr.add_loader((x, y, rows), global_batch_size=GLOBAL_BATCH, shuffle=True)
    held_out = tr.add_loader((x, y, rows), global_batch_size=GLOBAL_BATCH)
    install(tr, faults, place)
    with (place / f"{os.environ.get('TREK_RANK', 0)}-{os.getpid()}.jsonl").open("a") as ledger:
        for _ in tr.epochs(epochs):
            for inputs, targets, numbers in tr.train(data):
                _write(ledger, "tried", tr, numbers.tolist())
                _at(faults, "batch", tr.position.batches, place)
                is_applied = True
                for optimizer in optimizers:
                    if num_optimizers > 1:
                        model.zero_grad()
                    loss = F.mse_loss(model(inputs), targets)
                    tr.backward(loss)
                    is_applied = tr.step(optimizer) and is_applied
                tr.log(loss=loss, count=1.0)
                if is_applied:
                    _write(ledger, "applied", tr, [])
                time.sleep(delay_s if alone_s is None or tr.world.size > 1 else alone_s)
            seen = 0.0
            for inputs, targets, _ in tr.validate(held_out):
                tr.log(val_loss=F.mse_loss(model(inputs), targets))
                seen += len(inputs)
    return {
        "weights": [p.flatten().tolist() for p in model.parameters()],
        "batches": tr.position.batches,
        "epochs": tr.results.to_dict(orient="records"),
        "workers": tr.world.size,
    }


def _write(ledger: Any, what: str, tr: Traveler, rows: list[int]) -> None:
    row = [what, tr.position.epoch, tr.position.batches, tr.world.generation, tr.world.rank, rows, time.time()]
    ledger.write(json.dumps(row) + "\n")
    ledger.flush()


def _at(faults: Sequence[Fault], phase: str, batch: int, folder: Path) -> None:
    for fault in faults:
        if fault.phase == phase and fault.batch == batch and fault.happens(folder):
            fault.happen()


def install(tr: Traveler, faults: Sequence[Fault], folder: Path) -> None:
    """Make the faults of this process happen in the phases of the run that they name, until it is closed."""
    tr.loop.closing.enter_context(phases.listening(lambda phase: _at(faults, phase, tr.position.batches, folder)))


def check_ledgers(folder: Path, *, epochs: int) -> dict[int, int]:
    """Raise AssertionError unless every row of every epoch was trained once; the number of workers of each batch."""
    tried: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
    applied: dict[int, dict[int, bool]] = defaultdict(dict)
    epoch_of: dict[int, int] = {}
    for path in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for what, epoch, batch, generation, rank, rows, _ in lines:
            epoch_of[batch] = epoch
            if what == "tried":
                tried[batch, generation][rank] = rows
            else:
                has_gone_on = lines[-1][3] > generation
                applied[batch][generation] = applied[batch].get(generation, False) or has_gone_on
    assert sorted(applied) == list(range(1, epochs * NUM_BATCHES + 1)), sorted(applied)
    trained: dict[int, list[int]] = defaultdict(list)
    sizes = {}
    for batch, generations in applied.items():
        *lost, last = sorted(generations)  # a step that nobody survived who had applied it was done again
        assert not any(generations[one] for one in lost), f"batch {batch} was applied in generations {generations}"
        shares = tried[batch, last]
        rows = [row for share in shares.values() for row in share]
        assert len(rows) == GLOBAL_BATCH, f"batch {batch} had rows {sorted(rows)}"
        trained[epoch_of[batch]] += rows
        sizes[batch] = len(shares)
    for epoch in range(epochs):
        assert sorted(trained[epoch]) == list(range(NUM_ROWS)), f"epoch {epoch}: {sorted(trained[epoch])}"
    return sizes


def stalls(folder: Path) -> list[float]:
    """For every change of generation, the seconds between the last applied step before and the first after it."""
    times: dict[int, list[float]] = defaultdict(list)
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            what, _, _, generation, _, _, at = json.loads(line)
            if what == "applied":
                times[generation].append(at)
    order = sorted(times)
    return [min(times[after]) - max(times[before]) for before, after in itertools.pairwise(order)]

"""Training that survives its own workers: `trek launch --workers 2:4 examples/elastic/train.py --chaos 5`.

Every few seconds one of the workers is killed, without a warning, in the middle of whatever it does. The others go on
in the same processes, a new one takes its place, and the model is the one of an undisturbed run: compare the checksums.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

import trek


def main() -> None:
    """Train a small classifier, with or without chaos."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chaos", type=float, default=0.0, metavar="SECONDS", help="kill a worker so often")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.05, metavar="SECONDS", help="after every batch, to watch it")
    args = parser.parse_args()
    with trek.Traveler(elastic="exact") as tr:
        model = tr.add_model(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5)))
        optimizer = tr.add_optimizer(torch.optim.Adam(model.parameters(), lr=1e-2))
        data = tr.add_loader(make_data(), global_batch_size=64, shuffle=True)
        if args.chaos:
            threading.Thread(target=cause_chaos, args=(tr, args.chaos), daemon=True).start()
        for epoch in tr.epochs(args.epochs):
            for x, y in tr.train(data):
                loss = F.cross_entropy(model(x), y)
                tr.backward(loss)
                tr.step(optimizer)
                tr.log(loss=loss)
                time.sleep(args.pause)
            for x, y in tr.validate(data):
                tr.log(accuracy=(model(x).argmax(1) == y).float().mean())
            if tr.world.is_leader:
                accuracy = tr.results["valid_accuracy"].iloc[-1]
                print(f"epoch {epoch + 1}: accuracy {accuracy:.3f} with {tr.world.size} workers", flush=True)
        if tr.world.is_leader:
            print(f"weights {checksum(model)}", flush=True)


def make_data(num_rows: int = 4096) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around five centres."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(5, (num_rows,), generator=generator)
    centres = torch.randn(5, 20, generator=generator)
    return centres[labels] + torch.randn(num_rows, 20, generator=generator), labels


def cause_chaos(tr: trek.Traveler, seconds: float) -> None:
    """Every `seconds` of the clock that all share, the worker whose turn it is kills itself, if there is another.

    Where the group has just changed, no worker has the turn: two might have it, in the old group and in the new one.
    """
    while True:
        time.sleep(seconds - time.time() % seconds)
        turn, world = round(time.time() / seconds), tr.world
        time.sleep(min(1.0, seconds / 2))
        is_settled = tr.world is world and not world.is_preparing
        if is_settled and world.size > 1 and turn % world.size == world.rank:
            os.kill(os.getpid(), signal.SIGKILL)


def checksum(model: nn.Module) -> str:
    """Of all weights, to the last bit."""
    digest = hashlib.sha256()
    for weight in model.state_dict().values():
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()

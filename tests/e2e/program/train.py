"""An explicit loop that fits a line, run as a command of a trial; what else is asked for by hyperparameters happens."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser

import torch
from torch import nn

import trek

parser = ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=1)
parser.set_defaults(global_batch_size=32, sleep_s=0.0, deed="")
parser.set_defaults(**trek.hparams())
args = parser.parse_args()
if args.deed == "reject":
    raise trek.InvalidHP("such a rate is not worth a try")
if args.deed == "exit":
    sys.exit(7)

x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
rows = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
with trek.Traveler() as tr:
    data = tr.add_loader(rows, batch_size=args.global_batch_size // tr.world.size, shuffle=True)
    model = tr.add_model(nn.Linear(4, 1))
    optimizer = tr.add_optimizer(torch.optim.SGD(model.parameters(), lr=args.lr))
    print(f"rank {tr.world.rank} of {tr.world.size}, lr {args.lr}")
    for _ in tr.epochs(args.epochs):
        for features, target in tr.train(data):
            time.sleep(args.sleep_s if os.environ.get("TREK_RUN") == "1" else 0)  # until it was paused
            loss = nn.functional.mse_loss(model(features), target)
            tr.backward(loss)
            tr.step(optimizer)
            tr.log(loss=loss)
            if args.deed == "die once" and tr.position.batches == 12 and os.environ["TREK_RUN"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            if args.deed == "raise":
                raise ZeroDivisionError("the user's own mistake")
        for features, target in tr.validate(data):
            tr.log(validation_error=nn.functional.mse_loss(model(features), target))

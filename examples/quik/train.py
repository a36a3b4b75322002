"""An explicit training loop that runs unchanged on a laptop's CPU, on one GPU, on all of them, or under torchrun.

    python train.py                              one process per GPU, or one on the CPU
    python train.py --workers 2 --lr 0.02        two processes, with or without GPUs
    trek launch --workers 2 train.py             the same, started by a launcher; torchrun, mpirun and srun work too
    python train.py --name mine --resume latest  resume the run called `mine` where it was stopped
    trek experiment create search.yaml .         search over its arguments, using every slot

It learns which films a person likes, from synthetic ratings.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn, optim
from torch.optim.lr_scheduler import OneCycleLR

import trek

NUM_USERS, NUM_ITEMS = 200, 100


class Recommender(nn.Module):
    """A vector for every user and every item; a rating is the dot product of two vectors."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.users = nn.Embedding(NUM_USERS, dim)
        self.items = nn.Embedding(NUM_ITEMS, dim)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """The predicted ratings."""
        return (self.users(users) * self.items(items)).sum(1)


def make_ratings(num_rows: int, *, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Users, items and ratings, generated from hidden factors."""
    factors = torch.Generator().manual_seed(0)
    likes, traits = torch.randn(NUM_USERS, 3, generator=factors), torch.randn(NUM_ITEMS, 3, generator=factors)
    rows = torch.Generator().manual_seed(seed)
    users = torch.randint(NUM_USERS, (num_rows,), generator=rows)
    items = torch.randint(NUM_ITEMS, (num_rows,), generator=rows)
    return users, items, (likes[users] * traits[items]).sum(1)


def save_weights(tr: trek.Traveler, model: nn.Module, folder: Path, when: str) -> None:
    """Write the weights to a separate file: `state_dict_e0.safetensors` and so on."""
    weights = tr.strategy.model_state(model)
    if tr.world.is_leader:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(weights, folder / f"state_dict_e{when}.safetensors")


def train(tr: trek.Traveler, args: Namespace) -> Any:
    """The loop that every process runs. Returns the table of epochs."""
    data = tr.add_loader(make_ratings(args.rows, seed=1), batch_size=args.bs, shuffle=True)
    validation = tr.add_loader(make_ratings(args.rows // 5, seed=2), batch_size=args.bs)
    model = tr.add_model(Recommender())
    criterion = nn.MSELoss()
    optimizer = tr.add_optimizer(
        optim.Adam(
            model.parameters(), lr=args.lr, betas=tuple(args.betas), eps=args.eps, weight_decay=args.weight_decay
        )
    )
    tr.add_scheduler(OneCycleLR(optimizer, args.lr, steps_per_epoch=data.num_batches, epochs=args.epochs), per="batch")
    save_weights(tr, model, args.folder, "orig")

    for epoch in tr.epochs(args.epochs):
        for users, items, ratings in tr.train(data):
            with tr.autocast():
                loss = criterion(model(users, items), ratings)
            tr.backward(loss)
            tr.step(optimizer)
            tr.log(loss=loss)
        for users, items, ratings in tr.validate(validation):
            tr.log(loss=criterion(model(users, items), ratings))
        save_weights(tr, model, args.folder, str(epoch))
    return tr.results


def main() -> None:
    """Read the arguments, run the loop, and print the table of epochs."""
    parser = ArgumentParser(formatter_class=ArgumentDefaultsHelpFormatter)
    trek.arguments.add_learn_args(parser, {"learning_rate": 0.05, "bs": 128})
    trek.arguments.add_ddp_args(parser)
    trek.arguments.add_run_args(parser)
    parser.add_argument("--rows", type=int, default=20_000, help="number of training ratings")
    parser.add_argument("--folder", type=Path, default=Path("data"), help="folder for the weights of each epoch")
    parser.set_defaults(**trek.hparams())  # set when a trial runs this script
    args = parser.parse_args()
    results = trek.run(train, args, **trek.arguments.settings(args))
    if results is not None and trek.World.from_env().is_leader:
        print(results.to_string(index=False))


if __name__ == "__main__":
    main()

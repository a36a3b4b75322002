"""What every Strategy must do, as tests: subclass `StrategyConformance`, and say which strategy and how many processes.

class TestMyStrategy(StrategyConformance):
    strategy = "my-strategy"  # its name among the entry points `trek.strategies`
    num_workers = 3

The tests start real processes, and compare what they trained with a plain PyTorch loop in one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from trek.errors import ConfigError
from trek.strategies.strategy_registry import STRATEGIES
from trek.train.run import run
from trek.train.traveler import Traveler

_ROWS, _GLOBAL_BATCH, _EPOCHS = 22, 5, 2


class StrategyConformance:
    """The contract of `trek.strategies.base`, one promise a test."""

    strategy: ClassVar[str]
    num_workers: ClassVar[int] = 2
    wrong_num_workers: ClassVar[int | None] = None
    """A number of processes that the strategy cannot work with, if there is one."""
    options: ClassVar[dict[str, Any]] = {}
    tolerance: ClassVar[float] = 1e-9
    """In float64: the order of sums may differ from that of one process, and nothing else."""

    @pytest.fixture(autouse=True)
    def run_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A home of its own for the runs of a test."""
        monkeypatch.setenv("TREK_HOME", str(tmp_path))
        return tmp_path

    def run(self, function: Any, *args: Any, **settings: Any) -> Any:
        """`function(traveler, *args)` on every process; what the leader's call returned."""
        chosen = {"strategy": self.strategy, "strategy_options": self.options, "show_progress": False, **settings}
        return run(function, *args, workers=self.num_workers, **chosen)

    def test_collectives_reach_every_rank(self) -> None:
        """reduce, gather, broadcast, any: the same answer on every rank, by rank."""
        size = self.num_workers
        for told in self.run(collectives):
            assert told == {
                "sum": sum(range(size)),
                "max": size - 1,
                "min": 0,
                "gathered": [{"rank": rank} for rank in range(size)],
                "broadcast": "from 0",
                "any": [True, size > 1, False],
            }

    def test_replicas_start_from_the_leaders_weights(self) -> None:
        """Whatever each rank drew."""
        firsts = self.run(first_weights)
        assert all(first == firsts[0] for first in firsts)

    @pytest.mark.parametrize("accumulate", [1, 3])
    @pytest.mark.parametrize("clip_norm", [None, 0.1])
    def test_training_is_that_of_one_process(self, accumulate: int, clip_norm: float | None) -> None:
        """The gradient of a step is the mean over all its samples, however unevenly ranks share them."""
        trained = self.run(train, accumulate=accumulate, clip_norm=clip_norm)
        expected = by_hand(accumulate=accumulate, clip_norm=clip_norm)
        assert trained.keys() == expected.keys(), "the state has the names of the user's own module"
        for name, values in expected.items():
            torch.testing.assert_close(
                torch.tensor(trained[name], dtype=torch.float64), values, rtol=self.tolerance, atol=self.tolerance
            )

    def test_the_state_travels_to_a_strategy_of_one_process_and_back(self, run_home: Path) -> None:
        """Model and optimizer are saved by the user's own names, so that a run may go on under another strategy."""
        self.run(train, 1, name="there", checkpoint_period=None)
        latest = max((run_home / "runs" / "there" / "checkpoints").iterdir())
        alone = run(train, _EPOCHS, workers=1, strategy="solo", resume=latest, show_progress=False)
        back = self.run(train, _EPOCHS, resume=latest)
        expected = by_hand()
        for trained in (alone, back):
            for name, values in expected.items():
                torch.testing.assert_close(
                    torch.tensor(trained[name], dtype=torch.float64), values, rtol=self.tolerance, atol=self.tolerance
                )

    def test_a_number_of_processes_it_cannot_work_with_is_refused(self) -> None:
        """By the class itself, before anything is started."""
        if self.wrong_num_workers is not None:
            with pytest.raises(ConfigError, match=str(self.wrong_num_workers)):
                STRATEGIES.load(self.strategy).check_workers(self.wrong_num_workers)
        STRATEGIES.load(self.strategy).check_workers(self.num_workers)


def collectives(tr: Traveler) -> list[dict[str, Any]]:
    """What each rank is told."""
    strategy, rank, size = tr.strategy, tr.world.rank, tr.world.size
    told = {
        **{op: int(strategy.reduce(torch.tensor([float(rank)]), op)[0]) for op in ("sum", "max", "min")},
        "gathered": strategy.gather({"rank": rank}),
        "broadcast": strategy.broadcast(f"from {rank}"),
        "any": [strategy.any(rank == 0), strategy.any(0 < rank == size - 1), strategy.any(False)],
    }
    strategy.barrier()
    return strategy.gather(told)


def first_weights(tr: Traveler) -> list[list[float]]:
    """The weights each rank starts from, though each built others."""
    torch.manual_seed(tr.world.rank)
    model = tr.add_model(nn.Linear(3, 2))
    output = model(torch.eye(3)).detach().flatten().tolist()
    return tr.strategy.gather(output)


def train(tr: Traveler, epochs: int = _EPOCHS) -> dict[str, list[Any]]:
    """A small model on rows that no number of processes shares evenly; its weights by name."""
    model = tr.add_model(_model())
    optimizer = tr.add_optimizer(_optimizer(model))
    loader = tr.add_loader(_rows(), global_batch_size=max(_GLOBAL_BATCH, tr.world.size), shuffle=False)
    for _ in tr.epochs(epochs):
        for x, y in tr.train(loader):
            tr.backward(nn.functional.mse_loss(model(x), y))
            tr.step(optimizer)
    tr.save()
    return {name: value.tolist() for name, value in tr.strategy.model_state(model).items()}


def by_hand(*, accumulate: int = 1, clip_norm: float | None = None) -> dict[str, torch.Tensor]:
    """The same in plain PyTorch."""
    model = _model()
    optimizer = _optimizer(model)
    x, y = _rows()
    for _ in range(_EPOCHS):
        batches = [torch.arange(first, min(first + _GLOBAL_BATCH, _ROWS)) for first in range(0, _ROWS, _GLOBAL_BATCH)]
        for first in range(0, len(batches), accumulate):
            rows = torch.cat(batches[first : first + accumulate])
            nn.functional.mse_loss(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            optimizer.zero_grad()
    return model.state_dict()


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _rows() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(_ROWS, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    return x, x.sum(1, keepdim=True)

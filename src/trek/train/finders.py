"""Finders: search a learning rate or a batch size with a few steps of a temporary copy of a Trial.

Nothing is saved, and the states of the caller's random generators are restored.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trek.distribution import package_missing
from trek.errors import ConfigError, InputError
from trek.train.length import batches
from trek.train.loggers.base import Logger, MetricRow
from trek.train.loop.stopping import StopRequest
from trek.train.settings import TrainSettings
from trek.train.trainer import Trainer, check_trial_class
from trek.train.traveler import Traveler
from trek.train.trial import Trial
from trek.world import World
from trek.world.seeds import random_state, restore_random_state

if TYPE_CHECKING:
    import pandas as pd

_SMOOTHING = 0.9
_DIVERGED = 4.0
"""The sweep ends when the smoothed loss exceeds the best one by this factor."""
_UNLIMITED = batches(10**9)


@dataclass(frozen=True)
class LearningRates:
    """Losses over a sweep of learning rates."""

    rates: list[float]
    losses: list[float]
    """Smoothed, so that a single batch has little influence."""

    @property
    def suggestion(self) -> float:
        """The rate with the steepest descent of the loss, up to its minimum."""
        lowest = min(range(len(self.losses)), key=self.losses.__getitem__)
        falls = [self.losses[i + 1] - self.losses[i] for i in range(max(1, lowest))]
        return self.rates[min(range(len(falls)), key=falls.__getitem__)]

    def to_pandas(self) -> pd.DataFrame:
        """One row per step: `learning_rate` and `loss`."""
        import pandas as pd

        return pd.DataFrame({"learning_rate": self.rates, "loss": self.losses})

    def plot(self, path: Path | str) -> None:
        """Plot the curve and the suggestion to an image file. Needs matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise package_missing("plotting", "matplotlib", extra="demo") from error
        figure = Figure(figsize=(6, 4), layout="tight")
        axes = figure.add_subplot(xscale="log", xlabel="learning rate", ylabel="loss, smoothed")
        axes.plot(self.rates, self.losses)
        axes.axvline(self.suggestion, linestyle="--", label=f"{self.suggestion:.2g}")
        axes.legend()
        figure.savefig(path)


def find_learning_rate(
    trial_class: type[Trial],
    *,
    hparams: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    min_lr: float = 1e-7,
    max_lr: float = 10.0,
    num_batches: int = 100,
    seed: int = 0,
) -> LearningRates:
    """Train a copy of the Trial with a rate that grows from `min_lr` to `max_lr`, until the loss diverges."""
    check_trial_class(trial_class)
    if not 0.0 < min_lr < max_lr:
        raise ConfigError(f"a sweep must have 0 < min_lr < max_lr, got {min_lr} to {max_lr}.")
    if num_batches < 2:
        raise ConfigError(f"a sweep needs at least 2 batches, got {num_batches}.")
    sweep = _Sweep(min_lr, (max_lr / min_lr) ** (1.0 / (num_batches - 1)), num_batches)
    with _temporary_trainer(trial_class, hparams=hparams, data=data, seed=seed, logger=sweep) as trainer:
        sweep.begin(trainer.traveler)
        trainer.fit()
    if len(sweep.losses) < 2:
        raise InputError(f"no learning rate found: the loss was {sweep.last_loss} from the start. Lower min_lr.")
    return LearningRates(sweep.rates, sweep.losses)


def find_batch_size(
    trial_class: type[Trial],
    *,
    hparams: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    start: int = 1,
    limit: int = 65536,
    num_batches: int = 3,
    seed: int = 0,
) -> int:
    """The largest `global_batch_size` of `start`, twice `start`, … up to `limit` that trains `num_batches` batches.

    The search ends when memory is exhausted, or when one batch contains all data. The Trial must use the hyperparameter
    `global_batch_size`.
    """
    check_trial_class(trial_class)
    if not 1 <= start <= limit:
        raise ConfigError(f"a search must have 1 <= start <= limit, got {start} to {limit}.")
    found, size = 0, start
    while size <= limit:
        try:
            is_all = _try_size(trial_class, {**hparams, "global_batch_size": size}, data, num_batches, seed)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            break
        found, size = size, size * 2
        if is_all:
            break
    if not found:
        raise InputError(f"a batch of {start} does not fit into memory. Use a smaller start, or a smaller model.")
    return found


def _try_size(
    trial_class: type[Trial], hparams: Mapping[str, Any], data: Mapping[str, Any] | None, num_batches: int, seed: int
) -> bool:
    """Train a few batches; returns whether one batch contains all data."""
    limit = _Limit(num_batches)
    try:
        with _temporary_trainer(trial_class, hparams=hparams, data=data, seed=seed, logger=limit) as trainer:
            limit.stop = trainer.traveler.stop
            trainer.fit()
            return trainer.loader.num_batches == 1
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    message = str(error).lower()
    return "out of memory" in message or "can't allocate memory" in message


class _Limit(Logger):
    """Requests a stop after `num_batches`."""

    def __init__(self, num_batches: int) -> None:
        self.stop = StopRequest()
        self._num_batches = num_batches

    def log_metrics(self, row: MetricRow) -> None:
        """Count one batch."""
        if row.group == "training" and row.batches >= self._num_batches:
            self.stop.request("killed")  # ends at once, without a last validation


class _Sweep(Logger):
    """Raises the learning rate after every batch, and records the loss at each rate."""

    def __init__(self, first: float, factor: float, num_batches: int) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.last_loss = math.nan
        self._rate = first
        self._factor = factor
        self._num_batches = num_batches
        self._mean = 0.0

    def begin(self, traveler: Traveler) -> None:
        """Take over the learning rates of `traveler`."""
        self._traveler = traveler
        traveler.optimization.drop_schedulers()
        self._set()

    def log_metrics(self, row: MetricRow) -> None:
        """Record the loss of one batch."""
        if row.group != "training":
            return
        if "loss" not in row.metrics:
            raise InputError(f"a sweep needs the metric 'loss', but train_batch returned {sorted(row.metrics)}.")
        self.last_loss = row.metrics["loss"]
        if math.isfinite(self.last_loss):
            self._record(self.last_loss)
        if self._is_over():
            self._traveler.stop.request("killed")  # ends at once, without a last validation
        self._rate *= self._factor
        self._set()

    def _record(self, loss: float) -> None:
        self._mean = _SMOOTHING * self._mean + (1.0 - _SMOOTHING) * loss
        self.rates.append(self._rate)
        self.losses.append(self._mean / (1.0 - _SMOOTHING ** len(self.rates)))

    def _is_over(self) -> bool:
        if not math.isfinite(self.last_loss) or len(self.rates) >= self._num_batches:
            return True
        return len(self.losses) > 1 and self.losses[-1] > _DIVERGED * min(self.losses)

    def _set(self) -> None:
        for optimizer in self._traveler.optimization.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._rate


@contextmanager
def _temporary_trainer(
    trial_class: type[Trial], *, hparams: Mapping[str, Any], data: Mapping[str, Any] | None, seed: int, logger: Logger
) -> Iterator[Trainer]:
    """A Trainer that reports every batch and saves nothing; restores the random generators."""
    before = random_state()
    try:
        settings = TrainSettings.of(
            max_length=_UNLIMITED,
            validation_period=_UNLIMITED,
            seed=seed,
            report_period=1,
            sanity_check=0,
            show_progress=False,
        )
        with Traveler(settings, world=World(), loggers=[logger]) as traveler:
            trainer = Trainer(trial_class, trial_class.context_class(traveler, hparams=hparams, data=data))
            trainer.callbacks.clear()  # callbacks are for real runs only
            yield trainer
    finally:
        restore_random_state(before)

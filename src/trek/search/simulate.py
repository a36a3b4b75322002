"""Running a searcher without training: the course of a search, or how many trials end at which length."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from trek.errors import ConfigError, InvalidHP
from trek.search.base import Action, Create, Extend, Searcher, Stop
from trek.search.checked_numbers import describe_invalid
from trek.search.metric_pairs import comparable
from trek.search.searcher_registry import make_searcher, read_settings
from trek.search.searcher_settings import SearcherSettings, respell

MetricFunction = Callable[[Mapping[str, Any], int], float]


@dataclass
class SimulatedTrial:
    """One trial: how far it got, and its metric there."""

    key: int
    hparams: Mapping[str, Any]
    target: int
    length: int = 0
    metric: float | None = None
    state: Literal["running", "waiting", "ended", "rejected"] = "running"


@dataclass
class Simulation:
    """How a search went. `unit` is what lengths are counted in."""

    trials: list[SimulatedTrial] = field(default_factory=list)
    unit: str = "batches"
    metric: str = "metric"
    smaller_is_better: bool = True
    time: int = 0
    """When the last trial ended, if every unit of length takes one unit of time and no trial waits for a slot."""

    @property
    def lengths(self) -> dict[int, int]:
        """How many trials ended at which length, rejected ones left out."""
        counts = Counter(trial.length for trial in self.trials if trial.state != "rejected")
        return dict(sorted(counts.items()))

    @property
    def best(self) -> SimulatedTrial | None:
        """The trial with the best last metric that is finite."""
        sign = 1 if self.smaller_is_better else -1
        judged = [trial for trial in self.trials if trial.metric is not None and math.isfinite(trial.metric)]
        return min(judged, key=lambda trial: (sign * (trial.metric or 0.0), trial.key), default=None)

    @property
    def total_length(self) -> int:
        """What all trials trained together."""
        return sum(trial.length for trial in self.trials)


def simulate(config: Any, metric_fn: MetricFunction, *, seed: int | None = None) -> Simulation:
    """Run the searcher of `config` on `metric_fn(hparams, length)`, which may raise `InvalidHP`.

    `config` is an experiment config, or a mapping with `searcher` and `hyperparameters` in any accepted spelling.
    Trials advance side by side, all at the same speed.
    """
    settings, space, own_seed = _read(config)
    searcher = make_searcher(settings, hyperparameters=space, seed=own_seed if seed is None else seed)
    return _Run(searcher, settings, metric_fn).finish()


def preview(config: Any) -> list[dict[str, Any]]:
    """How many trials end at which length when every rung keeps its share: `[{"trials", "length", "unit"}, …]`."""
    settings, space, seed = _read(config)
    searcher = make_searcher(settings, hyperparameters=space, seed=seed)
    unit = settings.length.unit
    return [
        {"trials": trials, "length": length, "unit": unit} for length, trials in sorted(searcher.expected().items())
    ]


class _Run:
    """One simulation: a clock made of the lengths that trials have yet to train."""

    def __init__(self, searcher: Searcher, settings: Any, metric_fn: MetricFunction) -> None:
        self._searcher = searcher
        self._metric_fn = metric_fn
        self._rungs = searcher.rung_lengths
        self._trials: dict[int, SimulatedTrial] = {}
        self._clock: list[tuple[int, int]] = []
        self._result = Simulation(
            unit=settings.length.unit, metric=settings.metric, smaller_is_better=settings.smaller_is_better
        )

    def finish(self) -> Simulation:
        self._apply(self._searcher.start(), now=0)
        while self._clock:
            now, key = heapq.heappop(self._clock)
            self._result.time = max(self._result.time, now)
            if self._trials[key].state == "running":
                self._advance(self._trials[key], now=now)
        self._result.trials = list(self._trials.values())
        return self._result

    def _advance(self, trial: SimulatedTrial, *, now: int) -> None:
        trial.length = self._next_stop(trial)
        try:
            metric = float(self._metric_fn(trial.hparams, trial.length))
        except InvalidHP:
            trial.state = "rejected"
            self._apply(self._searcher.rejected(trial.key), now=now)
            return
        trial.metric = metric
        judged = comparable(metric, smaller_is_better=self._result.smaller_is_better)
        self._apply(self._searcher.report(trial.key, length=trial.length, metric=judged), now=now)
        if trial.state != "running":
            return
        if trial.length < trial.target:
            self._schedule(trial, now=now)
        else:
            trial.state = "waiting"
            self._apply(self._searcher.reached(trial.key), now=now)
            if trial.state == "waiting" and trial.key in self._searcher.trials.ended:
                trial.state = "ended"

    def _apply(self, actions: list[Action], *, now: int) -> None:
        for action in actions:
            if isinstance(action, Create):
                trial = SimulatedTrial(action.key, action.hparams, action.length)
                if action.parent is not None:
                    trial.length = self._trials[action.parent].length
                self._trials[action.key] = trial
                self._schedule(trial, now=now)
            elif isinstance(action, Extend):
                trial = self._trials[action.key]
                trial.target, trial.state = action.length, "running"
                self._schedule(trial, now=now)
            elif isinstance(action, Stop):
                self._trials[action.key].state = "ended"

    def _schedule(self, trial: SimulatedTrial, *, now: int) -> None:
        heapq.heappush(self._clock, (now + self._next_stop(trial) - trial.length, trial.key))

    def _next_stop(self, trial: SimulatedTrial) -> int:
        rungs = (rung for rung in self._rungs if rung > trial.length)
        return min(next(rungs, trial.target), trial.target)


def _read(config: Any) -> tuple[Any, Mapping[str, Any], int]:
    if isinstance(getattr(config, "searcher", None), SearcherSettings):
        return config.searcher, config.hyperparameters, config.reproducibility.experiment_seed
    if not isinstance(config, Mapping) or not isinstance(config.get("searcher"), Mapping):
        raise ConfigError("a search needs a config with a 'searcher' block, such as {'name': 'random', …}.")
    steps = config.get("scheduling_unit", config.get("batches_per_step", 100))
    raw = {"metric": "metric", **respell(config["searcher"], batches_per_step=steps if isinstance(steps, int) else 100)}
    try:
        settings = read_settings(raw)
    except PydanticCustomError as error:
        is_missing = error.type == "searcher_name_missing"
        raise ConfigError(f"'searcher.name' is missing. {error.message()}" if is_missing else error.message()) from None
    except ValidationError as error:
        raise ConfigError(describe_invalid(error, "searcher")) from None
    reproducibility = config.get("reproducibility") or {}
    return settings, config.get("hyperparameters") or {}, int(reproducibility.get("experiment_seed", 0))

"""Optuna's samplers as a Searcher: TPE, CMA-ES and Gaussian processes choose the next trial from those that ended.

Owns the way between our space and Optuna's; sampling is Optuna's. The study lives in memory and is made again of a
snapshot, without sampling anything anew: the chance in every draw is that of the seed and the trial's key alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from trek.errors import InputError
from trek.integrations.cmaes import has_optimizer, optimizer_as_json, optimizer_attributes, plain_attributes
from trek.search import Action, Categorical, Const, Double, Int, Log, Parameter, PoolSearcher, Space
from trek.search import OptunaSettings as Settings

_SAMPLERS: dict[str, Callable[..., BaseSampler]] = {
    "tpe": TPESampler,
    "cmaes": lambda *, seed: CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "gp": GPSampler,
}
_NEEDS = {"cmaes": "cmaes", "gp": "scipy"}


class OptunaSearcher(PoolSearcher):
    """`max_trials` trials of full length, each chosen with what is known when it is made."""

    learns = True

    def __init__(self, settings: Settings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.max_length.count,
            max_concurrent=settings.max_concurrent_trials,
        )
        self.settings = settings
        self._distributions = {
            ".".join(path): _distribution(parameter)
            for path, parameter in space.parameters.items()
            if not isinstance(parameter, Const)
        }
        self._last: dict[int, float] = {}
        """The newest finite metric of trials that run."""
        _check_installed(settings.sampler)
        self._study = _study()

    @property
    def max_trials(self) -> int:
        """As the settings say."""
        return self.settings.max_trials

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        """Remember the newest; only how a trial ends teaches the sampler."""
        if key not in self.trials.ended:
            self._last[key] = metric
        return []

    def reached(self, key: int) -> list[Action]:
        """It counts with its last metric; without a finite one, as the worst."""
        self._tell(key, self._last.get(key, math.inf))
        return super().reached(key)

    def failed(self, key: int) -> list[Action]:
        """It counts as the worst seen so far."""
        self._tell(key, math.inf)
        return super().failed(key)

    def rejected(self, key: int) -> list[Action]:
        """It counts as the worst too, so that what is rejected is not tried again and again."""
        self._tell(key, math.inf)
        return super().rejected(key)

    def _hparams(self, key: int) -> dict[str, Any]:
        self._study.sampler = _SAMPLERS[self.settings.sampler](seed=self._rng("optuna", key).randrange(2**31))
        drawn = self._study.ask(self._distributions)
        assert drawn.number == key
        values = {
            path: _value(parameter, drawn.params.get(".".join(path)))
            for path, parameter in self.space.parameters.items()
        }
        return self.space.assemble(values)

    def _tell(self, key: int, metric: float) -> None:
        if key in self.trials.ended:
            return
        self._last.pop(key, None)
        if not math.isfinite(metric):
            ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            metric = max((trial.value for trial in ended if trial.value is not None), default=math.inf)
        if math.isfinite(metric):
            self._study.tell(key, metric)
        else:
            self._study.tell(key, state=TrialState.FAIL)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "last": {str(key): metric if math.isfinite(metric) else None for key, metric in self._last.items()},
            "drawn": self._drawn(),
        }

    def _drawn(self) -> list[dict[str, Any]]:
        trials = self._study.get_trials(deepcopy=False)
        told = [_as_json(trial) for trial in trials]
        for number in _still_needed(trials):
            told[number]["optimizer"] = optimizer_as_json(trials[number].system_attrs)
        return told

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        self._last = {int(key): math.inf if value is None else value for key, value in snapshot["last"].items()}
        self._study = _study()
        self._study.add_trials([_from_json(told, self._distributions) for told in snapshot["drawn"]])


def _study() -> optuna.Study:
    shown = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study()
    finally:
        optuna.logging.set_verbosity(shown)


def _check_installed(sampler: str) -> None:
    from importlib.util import find_spec

    needed = _NEEDS.get(sampler)
    if needed is not None and find_spec(needed) is None:
        raise InputError(
            f"searcher.sampler {sampler!r} needs the package {needed}, which is not installed. "
            "Run `pip install 'trek[optuna]'`, or use sampler tpe."
        )


def _distribution(parameter: Parameter) -> BaseDistribution:
    """A logarithmic parameter is searched by its exponent, a categorical one by the place of its value."""
    if isinstance(parameter, Int):
        return IntDistribution(parameter.minval, parameter.maxval)
    if isinstance(parameter, Double | Log):
        return FloatDistribution(parameter.minval, parameter.maxval)
    assert isinstance(parameter, Categorical)
    return CategoricalDistribution(tuple(range(len(parameter.vals))))


def _value(parameter: Parameter, drawn: Any) -> Any:
    if isinstance(parameter, Const):
        return parameter.val
    if isinstance(parameter, Log):
        return float(parameter.base**drawn)
    return parameter.vals[drawn] if isinstance(parameter, Categorical) else drawn


def _still_needed(trials: Sequence[FrozenTrial]) -> list[int]:
    """Trials whose optimizer may be gone on from: the newest of those that ended, and all that may end yet."""
    carrying = [trial for trial in trials if has_optimizer(trial.system_attrs)]
    ended = [trial.number for trial in carrying if trial.state == TrialState.COMPLETE]
    return ended[-1:] + [trial.number for trial in carrying if trial.state == TrialState.RUNNING]


def _as_json(trial: FrozenTrial) -> dict[str, Any]:
    return {
        "state": trial.state.name,
        "params": dict(trial.params),
        "value": trial.value if trial.state == TrialState.COMPLETE else None,
        "attributes": plain_attributes(trial.system_attrs),
    }


def _from_json(told: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    optimizer = optimizer_attributes(told["optimizer"]) if "optimizer" in told else {}
    return create_trial(
        state=TrialState[told["state"]],
        params=dict(told["params"]),
        distributions=dict(distributions),
        value=told["value"],
        system_attrs={**plain_attributes(told["attributes"]), **optimizer},
    )

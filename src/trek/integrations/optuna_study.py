"""OptunaStudy: an Optuna study in memory over a Space. Owns the mapping between the two; sampling is Optuna's.

A study is restored from a snapshot without sampling again: the randomness of each draw comes from its seed alone.
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

from trek.integrations.cmaes import has_optimizer, optimizer_as_json, optimizer_attributes, plain_attributes
from trek.search import Categorical, Const, Double, Int, Log, Parameter, Space

_SAMPLERS: dict[str, Callable[..., BaseSampler]] = {
    "tpe": TPESampler,
    "cmaes": lambda *, seed: CmaEsSampler(seed=seed, warn_independent_sampling=False),
    "gp": GPSampler,
}


class OptunaStudy:
    """Draws points of a space and learns from their metrics, smaller ones being better."""

    def __init__(self, space: Space, *, sampler: str) -> None:
        self._space = space
        self._make_sampler = _SAMPLERS[sampler]
        self._distributions = {
            ".".join(path): _distribution(parameter)
            for path, parameter in space.parameters.items()
            if not isinstance(parameter, Const)
        }
        self._study = _new_study()

    def draw(self, key: int, *, seed: int) -> dict[str, Any]:
        """The hyperparameters of the trial `key`; keys are drawn in order."""
        self._study.sampler = self._make_sampler(seed=seed)
        drawn = self._study.ask(self._distributions)
        assert drawn.number == key
        values = {
            path: _value(parameter, drawn.params.get(".".join(path)))
            for path, parameter in self._space.parameters.items()
        }
        return self._space.assemble(values)

    def tell(self, key: int, metric: float) -> None:
        """How a trial ended; an infinite metric counts as the worst so far."""
        if not math.isfinite(metric):
            ended = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            metric = max((trial.value for trial in ended if trial.value is not None), default=math.inf)
        if math.isfinite(metric):
            self._study.tell(key, metric)
        else:
            self._study.tell(key, state=TrialState.FAIL)

    def snapshot(self) -> list[dict[str, Any]]:
        """Every trial drawn so far, as plain JSON."""
        trials = self._study.get_trials(deepcopy=False)
        records = [_as_json(trial) for trial in trials]
        for number in _still_needed(trials):
            records[number]["optimizer"] = optimizer_as_json(trials[number].system_attrs)
        return records

    def restore(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Continue from `snapshot`."""
        self._study = _new_study()
        self._study.add_trials([_from_json(record, self._distributions) for record in records])


def _new_study() -> optuna.Study:
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study()
    finally:
        optuna.logging.set_verbosity(verbosity)


def _distribution(parameter: Parameter) -> BaseDistribution:
    """A logarithmic parameter is searched by its exponent, a categorical one by the index of its value."""
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
    """Trials whose optimizer may be continued: the newest of those that ended, and all that are still running."""
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


def _from_json(record: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    optimizer = optimizer_attributes(record["optimizer"]) if "optimizer" in record else {}
    return create_trial(
        state=TrialState[record["state"]],
        params=dict(record["params"]),
        distributions=dict(distributions),
        value=record["value"],
        system_attrs={**plain_attributes(record["attributes"]), **optimizer},
    )

"""Optuna's samplers as a Searcher: TPE, CMA-ES and Gaussian processes choose the next trial from those that ended.

Owns the settings and the events; what is Optuna's own is in `optuna_study`, which is loaded with the first Searcher, so
that a config that names this searcher can be read without Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from pydantic import Field

from trek.distribution import package_missing
from trek.search import Action, LengthSetting, PoolSearcher, SearcherSettings, Space

_NEEDS: dict[str, tuple[str, ...]] = {"tpe": ("optuna",), "cmaes": ("optuna", "cmaes"), "gp": ("optuna", "scipy")}


class OptunaSettings(SearcherSettings):
    """Optuna's samplers: each trial is chosen by the results of those before it."""

    name: Literal["optuna"]
    max_length: LengthSetting
    """How long a trial trains that nothing stops."""
    max_trials: int = Field(ge=1, le=100_000)
    """How many trials there are."""
    sampler: Literal["tpe", "cmaes", "gp"] = "tpe"
    """Which of Optuna's samplers chooses the hyperparameters."""
    max_concurrent_trials: int = Field(default=4, ge=0)
    """Trials at the same time; 0: no limit. Few, since a trial learns only from those that ended before it."""


class OptunaSearcher(PoolSearcher):
    """`max_trials` trials of full length, each chosen with what is known when it is made."""

    settings_type: ClassVar[type[SearcherSettings]] = OptunaSettings
    learns = True

    def __init__(self, settings: OptunaSettings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.max_length.count,
            max_concurrent=settings.max_concurrent_trials,
        )
        _require_installed(settings.sampler)
        from trek.integrations.optuna_study import OptunaStudy

        self.settings = settings
        self._study = OptunaStudy(space, sampler=settings.sampler)
        self._last: dict[int, float] = {}
        """The newest metric of each running trial."""

    @property
    def max_trials(self) -> int:
        """As the settings say."""
        return self.settings.max_trials

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        """Remember the newest metric; the sampler learns from it when the trial ends."""
        if key not in self.trials.ended:
            self._last[key] = metric
        return []

    def reached(self, key: int) -> list[Action]:
        """The trial counts with its last metric; without a finite one, as the worst."""
        self._tell(key, self._last.get(key, math.inf))
        return super().reached(key)

    def failed(self, key: int) -> list[Action]:
        """The trial counts as the worst so far."""
        self._tell(key, math.inf)
        return super().failed(key)

    def rejected(self, key: int) -> list[Action]:
        """The trial counts as the worst, so that similar hyperparameters are not tried again and again."""
        self._tell(key, math.inf)
        return super().rejected(key)

    def _hparams(self, key: int) -> dict[str, Any]:
        return self._study.draw(key, seed=self._rng("optuna", key).randrange(2**31))

    def _tell(self, key: int, metric: float) -> None:
        if key not in self.trials.ended:
            self._last.pop(key, None)
            self._study.tell(key, metric)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "last": {str(key): metric if math.isfinite(metric) else None for key, metric in self._last.items()},
            "drawn": self._study.snapshot(),
        }

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        self._last = {int(key): math.inf if value is None else value for key, value in snapshot["last"].items()}
        self._study.restore(snapshot["drawn"])


def _require_installed(sampler: str) -> None:
    for package in _NEEDS[sampler]:
        if find_spec(package) is None:
            raise package_missing(f"searcher 'optuna' with sampler {sampler!r}", package, extra="optuna")

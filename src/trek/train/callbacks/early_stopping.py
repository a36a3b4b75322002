"""EarlyStopping: ends a run whose validation metric has stopped getting better."""

from __future__ import annotations

from typing import Any

from trek.errors import ConfigError
from trek.train.callbacks.callback import Callback
from trek.train.metrics.goal import Goal
from trek.train.trial import TrialContext


class EarlyStopping(Callback):
    """Stop after `patience` validations without an improvement of at least `min_delta`."""

    def __init__(
        self,
        context: TrialContext,
        *,
        metric: str | None = None,
        smaller_is_better: bool | None = None,
        patience: int = 3,
        min_delta: float = 0.0,
    ) -> None:
        if patience < 1:
            raise ConfigError(f"patience counts validations and must be at least 1, got {patience}.")
        self._context = context
        self._goal = Goal(metric, smaller_is_better)
        self._patience = patience
        self._min_delta = min_delta
        self._best: float | None = None
        self._num_worse = 0

    def on_validation_end(self, metrics: dict[str, float]) -> None:
        """Count, and ask for the stop."""
        score = self._goal.score(metrics)
        if score is not None and (self._best is None or score < self._best - self._min_delta):
            self._best, self._num_worse = score, 0
            return
        self._num_worse += 1
        if self._num_worse >= self._patience:
            self._context.traveler.stop.request("early_stopping")

    def state_dict(self) -> dict[str, Any]:
        """What has been seen."""
        return {"best": self._best, "num_worse": self._num_worse}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._best, self._num_worse = state_dict["best"], state_dict["num_worse"]

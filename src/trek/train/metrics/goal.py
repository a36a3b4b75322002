"""Goal: which validation metric determines the best checkpoint, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trek.errors import ConfigError
from trek.metric_direction import is_smaller_better


@dataclass(frozen=True)
class Goal:
    """A metric to minimize or maximize.

    Without a name, it is the loss if there is one, else the first metric. Without a direction, the metric's
    name decides: see `metric_direction`.
    """

    metric: str | None = None
    smaller_is_better: bool | None = None

    def choose(self, metrics: Mapping[str, float]) -> str | None:
        """The name of the deciding metric among `metrics`."""
        if self.metric is None:
            losses = [name for name in metrics if "loss" in name]
            return next(iter([*losses, *metrics]), None)
        if metrics:
            self.check(metrics)
        return self.metric

    def check(self, metrics: Mapping[str, float]) -> None:
        """Raise `ConfigError` unless a validation with these metrics has the one that decides."""
        if self.metric is not None and self.metric not in metrics:
            found = (
                f"the validation metrics: {', '.join(sorted(metrics))}" if metrics else "a validation without metrics"
            )
            raise ConfigError(
                f"metric {self.metric!r} not found in {found}. Return it from evaluate_batch, or log it in the loop "
                "over validate, or choose one that is there."
            )

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """A number that is smaller if the metrics are better; None if the metric is missing or not finite.

        An infinite value comes from a run that diverged or a metric that failed, and must not pass for the best.
        """
        name = self.choose(metrics)
        if name is None or name not in metrics or not math.isfinite(metrics[name]):
            return None
        return metrics[name] if self._is_smaller_better(name) else -metrics[name]

    def _is_smaller_better(self, name: str) -> bool:
        return is_smaller_better(name) if self.smaller_is_better is None else self.smaller_is_better

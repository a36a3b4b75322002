"""Goal: which validation metric determines the best checkpoint, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trek.errors import ConfigError

_LARGER_STEMS = ("acc", "auc", "f1", "precision", "recall", "score", "bleu", "rouge", "dice")
_LARGER_WORDS = {"r2", "iou", "miou", "map"}  # whole words: mape is an error


@dataclass(frozen=True)
class Goal:
    """A metric to minimize or maximize.

    Without a name, it is the loss if there is one, else the first metric. Without a direction, metrics with names such
    as accuracy or auc are maximized and all others minimized.
    """

    metric: str | None = None
    smaller_is_better: bool | None = None

    def choose(self, metrics: Mapping[str, float]) -> str | None:
        """The name of the deciding metric among `metrics`."""
        if self.metric is None:
            losses = [name for name in metrics if "loss" in name]
            return next(iter([*losses, *metrics]), None)
        if metrics and self.metric not in metrics:
            raise ConfigError(
                f"metric {self.metric!r} not found in the validation metrics: {', '.join(sorted(metrics))}. "
                "Return it from evaluate_batch, or choose one of these."
            )
        return self.metric

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """A number that is smaller if the metrics are better; None if the metric is missing or not finite.

        An infinite value comes from a run that diverged or a metric that failed, and must not pass for the best.
        """
        name = self.choose(metrics)
        if name is None or name not in metrics or not math.isfinite(metrics[name]):
            return None
        return metrics[name] if self._is_smaller_better(name) else -metrics[name]

    def _is_smaller_better(self, name: str) -> bool:
        if self.smaller_is_better is not None:
            return self.smaller_is_better
        words = name.lower().replace("-", "_").split("_")
        if "loss" in words or "error" in words:
            return True
        return not any(word.startswith(_LARGER_STEMS) or word in _LARGER_WORDS for word in words)

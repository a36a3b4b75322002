"""Goal: which validation metric decides what is best, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trek.errors import ConfigError

_LARGER_STEMS = ("acc", "auc", "f1", "precision", "recall", "score", "bleu", "rouge", "dice")
_LARGER_WORDS = {"r2", "iou", "miou", "map"}  # whole words: mape is an error


@dataclass(frozen=True)
class Goal:
    """A metric to make small, or large.

    Without a name, the loss is taken where there is one, else the first metric. Without a direction, names such as
    accuracy or auc are to grow and all others to shrink.
    """

    metric: str | None = None
    smaller_is_better: bool | None = None

    def choose(self, metrics: Mapping[str, float]) -> str | None:
        """The name of the metric that decides, among `metrics`."""
        if self.metric is None:
            losses = [name for name in metrics if "loss" in name]
            return next(iter([*losses, *metrics]), None)
        if metrics and self.metric not in metrics:
            raise ConfigError(
                f"metric {self.metric!r} is not among the validation metrics: {', '.join(sorted(metrics))}. "
                "Return it from evaluate_batch, or name one of these."
            )
        return self.metric

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """A number that is smaller for what is better; None when nothing was measured."""
        name = self.choose(metrics)
        if name is None or name not in metrics or math.isnan(metrics[name]):
            return None
        return metrics[name] if self._is_small_good(name) else -metrics[name]

    def _is_small_good(self, name: str) -> bool:
        if self.smaller_is_better is not None:
            return self.smaller_is_better
        words = name.lower().replace("-", "_").split("_")
        if "loss" in words or "error" in words:
            return True
        return not any(word.startswith(_LARGER_STEMS) or word in _LARGER_WORDS for word in words)

"""Which version answers the next request: in proportion to weights, evenly spread, without a random generator."""

from __future__ import annotations

from collections.abc import Mapping

from trek.errors import InputError


class WeightedChoice:
    """Smooth weighted round robin: of any `n` choices, each version has `n` times its share, give or take one."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        check_weights(weights)
        self.weights = {version: weight for version, weight in weights.items() if weight > 0}
        self._credit = dict.fromkeys(self.weights, 0.0)
        self._total = sum(self.weights.values())

    def next(self) -> str:
        """The version of the next request."""
        for version, weight in self.weights.items():
            self._credit[version] += weight
        chosen = max(self._credit, key=lambda version: self._credit[version])
        self._credit[chosen] -= self._total
        return chosen


def check_weights(weights: Mapping[str, float]) -> None:
    """InputError unless at least one weight is positive and none is negative."""
    if any(weight < 0 for weight in weights.values()) or not any(weights.values()):
        raise InputError(f"weights must be 0 or more, and one of them greater than 0, got {dict(weights)}.")

"""Grid search: every point of the grid once, the last parameter varying fastest."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from trek.search.pool import PoolSearcher
from trek.search.searcher_settings import GridSettings
from trek.search.space import Space


class GridSearcher(PoolSearcher):
    """One trial for each point; a point that is rejected has no substitute."""

    def __init__(self, settings: GridSettings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.max_length.count,
            max_concurrent=settings.max_concurrent_trials,
        )

    @property
    def max_trials(self) -> int:
        return len(self._points)

    @property
    def can_replace(self) -> bool:
        return False

    @cached_property
    def _points(self) -> list[dict[str, Any]]:
        return self.space.grid()

    def _hparams(self, key: int) -> dict[str, Any]:
        return self._points[key]

"""Random search: independent draws of the space, each trained to the full length."""

from __future__ import annotations

from trek.search.pool import PoolSearcher
from trek.search.searcher_settings import RandomSettings
from trek.search.space import Space


class RandomSearcher(PoolSearcher):
    """`max_trials` draws."""

    def __init__(self, settings: RandomSettings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.max_length.count,
            max_concurrent=settings.max_concurrent_trials,
        )
        self.settings = settings

    @property
    def max_trials(self) -> int:
        return self.settings.max_trials

"""Random search: independent draws of the space, each trained to the full length."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trek.search.pool import PoolSearcher
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.space import Space


class RandomSettings(SearcherSettings):
    """Independent draws."""

    name: Literal["random"]
    max_length: LengthSetting | None = None
    """How long a trial trains; without it, a command decides by itself, and a Trial trains for 1 epoch."""
    max_trials: int = Field(ge=1, le=1_000_000)
    """How many trials there are."""
    max_concurrent_trials: int = Field(default=16, ge=0)
    """Trials that may run at the same time; 0: no limit."""


class RandomSearcher(PoolSearcher):
    """`max_trials` draws."""

    settings_type: ClassVar[type[SearcherSettings]] = RandomSettings

    def __init__(self, settings: RandomSettings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.length.count,
            max_concurrent=settings.max_concurrent_trials,
        )
        self.settings = settings

    @property
    def max_trials(self) -> int:
        return self.settings.max_trials

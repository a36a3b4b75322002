"""One trial, with the hyperparameters as they are, or one draw of the space."""

from __future__ import annotations

from typing import ClassVar, Literal

from trek.search.pool import PoolSearcher
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.space import Space


class SingleSettings(SearcherSettings):
    """One trial."""

    is_search = False
    name: Literal["single"]
    max_length: LengthSetting | None = None
    """How long a trial trains; without it, a command decides by itself, and a Trial trains for 1 epoch."""


class SingleSearcher(PoolSearcher):
    """The searcher of an experiment that does not search."""

    settings_type: ClassVar[type[SearcherSettings]] = SingleSettings

    def __init__(self, settings: SingleSettings, *, space: Space, seed: int) -> None:
        super().__init__(space=space, seed=seed, length=settings.length.count, max_concurrent=1)

    @property
    def max_trials(self) -> int:
        return 1

"""Grid search: every point of the grid once, the last parameter varying fastest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from trek.errors import ConfigError
from trek.search.pool import PoolSearcher
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.space import Space

MAX_POINTS = 100_000


class GridSettings(SearcherSettings):
    """Every point of the grid."""

    name: Literal["grid"]
    max_length: LengthSetting | None = None
    """How long a trial trains; without it, a command decides by itself, and a Trial trains for 1 epoch."""
    max_concurrent_trials: int = Field(default=16, ge=0)
    """Trials that may run at the same time; 0: no limit."""


class GridSearcher(PoolSearcher):
    """One trial for each point; a point that is rejected has no substitute."""

    settings_type: ClassVar[type[SearcherSettings]] = GridSettings

    @classmethod
    def check_space(cls, space: Space) -> None:
        if space.grid_size() > MAX_POINTS:
            raise ConfigError(f"the grid has {space.grid_size()} points, more than {MAX_POINTS}. Lower some counts.")

    def __init__(self, settings: GridSettings, *, space: Space, seed: int) -> None:
        super().__init__(
            space=space,
            seed=seed,
            length=settings.length.count,
            max_concurrent=settings.max_concurrent_trials,
        )

    @property
    def max_trials(self) -> int:
        return len(self._points)

    @property
    def can_replace(self) -> bool:
        return False

    @cached_property
    def _points(self) -> Sequence[dict[str, Any]]:
        return self.space.grid()

    def _hparams(self, key: int) -> dict[str, Any]:
        return self._points[key]

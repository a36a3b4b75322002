"""One trial, with the hyperparameters as they are (or one draw of the space), trained to its length."""

from __future__ import annotations

from collections import Counter

from trek.search.base import Action, Finish, Searcher
from trek.search.settings import SingleSettings
from trek.search.space import Space

MAX_REPLACEMENTS = 100


class SingleSearcher(Searcher):
    """The searcher of an experiment that does not search."""

    def __init__(self, settings: SingleSettings, *, space: Space, seed: int) -> None:
        super().__init__(space=space, seed=seed)
        self.settings = settings

    def start(self) -> list[Action]:
        return [self._create(length=self.settings.max_length.count)]

    def reached(self, key: int) -> list[Action]:
        self.trials.ended.add(key)
        return [Finish()]

    def failed(self, key: int) -> list[Action]:
        self.trials.failed.add(key)
        return self.reached(key)

    def rejected(self, key: int) -> list[Action]:
        """A space with nothing to vary would be rejected for ever: the trial counts as failed then."""
        self.trials.rejected.add(key)
        if not self.space.varies or len(self.trials.rejected) > MAX_REPLACEMENTS:
            return self.failed(key)
        return [self._create(length=self.settings.max_length.count)]

    def progress(self) -> float:
        return 1.0 if self.trials.ended else 0.0

    def expected(self) -> Counter[int]:
        return Counter({self.settings.max_length.count: 1})

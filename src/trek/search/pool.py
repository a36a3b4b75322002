"""PoolSearcher: makes trials until there are enough, a limited number at a time. What simple searchers share."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter

from trek.search.base import Action, Finish, Searcher
from trek.search.space import Space

MAX_REPLACEMENTS = 1000
"""Rejected trials that are replaced before a space counts as unusable."""


class PoolSearcher(Searcher):
    """Every trial trains to the full length. `max_concurrent` 0 means no limit."""

    def __init__(self, *, space: Space, seed: int, length: int, max_concurrent: int) -> None:
        super().__init__(space=space, seed=seed)
        self.length = length
        self.max_concurrent = max_concurrent

    @property
    @abstractmethod
    def max_trials(self) -> int:
        """How many trials there are, rejected ones not counted."""

    @property
    def can_replace(self) -> bool:
        """Whether a rejected trial has a substitute."""
        return self.space.varies and len(self.trials.rejected) <= MAX_REPLACEMENTS

    def start(self) -> list[Action]:
        return self._fill()

    def reached(self, key: int) -> list[Action]:
        return self._end(key)

    def failed(self, key: int) -> list[Action]:
        self.trials.failed.add(key)
        return self._end(key)

    def rejected(self, key: int) -> list[Action]:
        if not self.can_replace:
            return self.failed(key)
        self.trials.rejected.add(key)
        return self._end(key)

    def progress(self) -> float:
        return self._num_judged / self.max_trials

    def expected(self) -> Counter[int]:
        return Counter({self.length: self.max_trials})

    @property
    def _num_judged(self) -> int:
        return len(self.trials.ended) - len(self.trials.rejected)

    @property
    def _num_running(self) -> int:
        return self.trials.created - len(self.trials.ended)

    def _end(self, key: int) -> list[Action]:
        if key in self.trials.ended:
            return []
        self.trials.ended.add(key)
        return self._fill()

    def _fill(self) -> list[Action]:
        actions: list[Action] = []
        while self._num_running < (self.max_concurrent or self.max_trials) and self._is_short:
            actions.append(self._create(length=self.length))
        if not actions and self._num_running == 0:
            actions.append(Finish())
        return actions

    @property
    def _is_short(self) -> bool:
        return self.trials.created - len(self.trials.rejected) < self.max_trials

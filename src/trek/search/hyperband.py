"""Hyperband: brackets of synchronous successive halving, from many short trials to few long ones."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from trek.search.base import Action, Extend, Finish, Searcher, Snapshot, Stop
from trek.search.metric_pairs import from_pairs, to_pairs
from trek.search.pool import MAX_REPLACEMENTS
from trek.search.rungs import whole_log
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.space import Space

MAX_TRIALS = 1_000_000


@dataclass
class SyncBracket:
    """Sizes and lengths of each round, and which trials have finished the present one."""

    sizes: list[int]
    lengths: list[int]
    members: list[int] = field(default_factory=list)
    metrics: dict[int, float] = field(default_factory=dict)
    round: int = 0

    @property
    def is_over(self) -> bool:
        """Whether its last round was judged."""
        return self.round == len(self.sizes)

    @property
    def is_short(self) -> bool:
        """Whether trials of its first round are still to be made."""
        return self.round == 0 and len(self.members) < self.sizes[0]

    def judge(self, failed: set[int]) -> tuple[list[int], list[int]]:
        """Once all have arrived: which trials continue, and which end. None and none before."""
        if self.is_over or self.is_short or len(self.metrics) < len(self.members):
            return [], []
        self.round += 1
        ranked = sorted(self.members, key=lambda key: (self.metrics[key], key))
        going_on = 0 if self.is_over else min(self.sizes[self.round], len(ranked))
        best = [key for key in ranked[:going_on] if key not in failed]
        if not best:
            self.round = len(self.sizes)
        done = [key for key in self.members if key not in best]
        self.members, self.metrics = best, {}
        return best, done


def hyperband_brackets(max_length: int, *, divisor: float) -> list[SyncBracket]:
    """The brackets of Hyperband for one full length, the most aggressive first."""
    deepest = whole_log(max_length, divisor)
    brackets = []
    for depth in range(deepest, -1, -1):
        first = math.ceil((deepest + 1) / (depth + 1) * divisor**depth - 1e-9)
        sizes = [max(int(first / divisor**i + 1e-9), 1) for i in range(depth + 1)]
        lengths = [max(int(max_length / divisor ** (depth - i) + 1e-9), 1) for i in range(depth + 1)]
        brackets.append(SyncBracket(sizes, lengths))
    return brackets


class HyperbandSettings(SearcherSettings):
    """Hyperband: brackets of synchronous successive halving, from the most to the least aggressive."""

    name: Literal["hyperband"]
    max_length: LengthSetting
    """How long a trial trains that nothing stops."""
    divisor: float = Field(default=3, ge=1.1, le=1_000_000)
    """At each rung, one trial of so many goes on; each rung is so many times longer."""
    max_concurrent_trials: int = Field(default=16, ge=0)
    """Trials that may run at the same time; 0: no limit."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        deepest = whole_log(self.max_length.count, self.divisor)
        if self.divisor**deepest > MAX_TRIALS:  # of the first bracket, before any are listed
            raise ValueError(
                f"hyperband over {self.max_length.count} {self.max_length.unit} with divisor {self.divisor:g} has more "
                f"than {MAX_TRIALS} trials. Shorten max_length, raise divisor, or count in a larger unit."
            )
        return self


class HyperbandSearcher(Searcher):
    """Trials of a round wait for each other; brackets do not."""

    settings_type: ClassVar[type[SearcherSettings]] = HyperbandSettings

    def __init__(self, settings: HyperbandSettings, *, space: Space, seed: int) -> None:
        super().__init__(space=space, seed=seed)
        self.brackets = hyperband_brackets(settings.max_length.count, divisor=settings.divisor)
        self.max_concurrent = settings.max_concurrent_trials
        self._reported: dict[int, float] = {}
        self._num_waiting = 0

    def start(self) -> list[Action]:
        return self._fill()

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        """Only the last report before a trial reaches its length counts."""
        if key not in self.trials.ended:
            self._reported[key] = metric
        return []

    def reached(self, key: int) -> list[Action]:
        return self._arrive(key, self._reported.pop(key, math.inf))

    def failed(self, key: int) -> list[Action]:
        self.trials.failed.add(key)
        return self._arrive(key, math.inf)

    def rejected(self, key: int) -> list[Action]:
        if not self.space.varies or len(self.trials.rejected) > MAX_REPLACEMENTS:
            return self.failed(key)
        self.trials.rejected.add(key)
        self.trials.ended.add(key)
        self._bracket(key).members.remove(key)
        return self._fill()

    def progress(self) -> float:
        return len(self.trials.ended) / sum(bracket.sizes[0] for bracket in self.brackets)

    def expected(self) -> Counter[int]:
        ends: Counter[int] = Counter()
        for bracket in self.brackets:
            following = [*bracket.sizes[1:], 0]
            for size, after, length in zip(bracket.sizes, following, bracket.lengths, strict=True):
                ends[length] += size - after
        return +ends

    @property
    def rung_lengths(self) -> list[int]:
        return sorted({length for bracket in self.brackets for length in bracket.lengths})

    def _bracket(self, key: int) -> SyncBracket:
        return next(bracket for bracket in self.brackets if key in bracket.members)

    def _arrive(self, key: int, metric: float) -> list[Action]:
        if key in self.trials.ended:
            return []
        bracket = self._bracket(key)
        if key in bracket.metrics:
            return []
        bracket.metrics[key] = metric
        self._num_waiting += 1
        going_on, done = bracket.judge(self.trials.failed)
        self._num_waiting -= len(going_on) + len(done)
        self.trials.ended |= set(done)
        actions: list[Action] = [Stop(who) for who in done]
        actions += [Extend(who, bracket.lengths[bracket.round]) for who in going_on]
        return actions + self._fill()

    def _fill(self) -> list[Action]:
        actions: list[Action] = []
        for bracket in self.brackets:
            while bracket.is_short and self._has_room:
                create = self._create(length=bracket.lengths[0])
                bracket.members.append(create.key)
                actions.append(create)
        if not actions and all(bracket.is_over for bracket in self.brackets):
            actions.append(Finish())
        return actions

    @property
    def _has_room(self) -> bool:
        running = self.trials.created - len(self.trials.ended) - self._num_waiting
        return not self.max_concurrent or running < self.max_concurrent

    def _snapshot(self) -> Snapshot:
        return {
            "brackets": [
                {"members": b.members, "metrics": to_pairs(b.metrics), "round": b.round} for b in self.brackets
            ],
            "reported": to_pairs(self._reported),
            "num_waiting": self._num_waiting,
        }

    def _restore(self, snapshot: Snapshot) -> None:
        for bracket, kept in zip(self.brackets, snapshot["brackets"], strict=True):
            bracket.members, bracket.round = list(kept["members"]), kept["round"]
            bracket.metrics = from_pairs(kept["metrics"])
        self._reported = from_pairs(snapshot["reported"])
        self._num_waiting = snapshot["num_waiting"]

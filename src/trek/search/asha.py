"""Asynchronous successive halving: one bracket (`asha`), or several that stop more or less early (`adaptive_asha`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from trek.search.base import Action, Extend, Finish, Searcher, Snapshot, Stop
from trek.search.bracket import Bracket, PromotionBracket, StoppingBracket, Verdict
from trek.search.pool import MAX_REPLACEMENTS
from trek.search.rungs import whole_log
from trek.search.searcher_settings import LengthSetting, SearcherSettings
from trek.search.space import Space


class AshaSettings(SearcherSettings):
    """Asynchronous successive halving; with `promote` trials wait at a rung to be promoted, instead of running on."""

    name: Literal["asha"]
    max_length: LengthSetting
    """How long a trial trains that nothing stops."""
    max_trials: int = Field(ge=1, le=1_000_000)
    """How many trials there are."""
    num_rungs: int = Field(default=5, ge=1, le=32)
    """Lengths at which trials are compared, `max_length` included."""
    divisor: float = Field(default=4, ge=1.1, le=1_000_000)
    """At each rung, one trial of so many goes on; each rung is so many times longer."""
    max_concurrent_trials: int = Field(default=16, ge=0)
    """Trials that may run at the same time; 0: no limit."""
    promote: bool = False
    """Trials wait at a rung until they are promoted, instead of training on until they are stopped."""


class AdaptiveAshaSettings(SearcherSettings):
    """Several ASHA brackets that stop bad trials more or less early."""

    name: Literal["adaptive_asha"]
    max_length: LengthSetting
    """How long a trial trains that nothing stops."""
    max_trials: int = Field(ge=1, le=1_000_000)
    """How many trials there are."""
    mode: Literal["aggressive", "standard", "conservative"] = "standard"
    """How early bad trials are stopped: which brackets there are."""
    divisor: float = Field(default=4, ge=1.1, le=1_000_000)
    """At each rung, one trial of so many goes on; each rung is so many times longer."""
    max_rungs: int = Field(default=5, ge=1, le=32)
    """Rungs of the bracket that stops earliest, at most."""
    max_concurrent_trials: int = Field(default=16, ge=0)
    """Trials that may run at the same time; 0: no limit."""
    bracket_rungs: list[Annotated[int, Field(ge=1, le=32)]] = Field(default_factory=list)
    """The number of rungs of each bracket, in place of `mode`."""
    promote: bool = False
    """Trials wait at a rung until they are promoted, instead of training on until they are stopped."""


class BracketSearcher(Searcher):
    """Shares trials between brackets; each makes its own decisions."""

    def __init__(self, brackets: Sequence[Bracket], *, space: Space, seed: int) -> None:
        super().__init__(space=space, seed=seed)
        self.brackets = list(brackets)
        self._bracket_of: dict[int, int] = {}

    def start(self) -> list[Action]:
        return self._fill()

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        return self._follow(key, self._bracket(key).report(key, length=length, metric=metric))

    def reached(self, key: int) -> list[Action]:
        return self._follow(key, self._bracket(key).reached(key))

    def failed(self, key: int) -> list[Action]:
        self.trials.failed.add(key)
        return self._follow(key, self._bracket(key).failed(key))

    def rejected(self, key: int) -> list[Action]:
        if not self.space.varies or len(self.trials.rejected) > MAX_REPLACEMENTS:
            return self.failed(key)
        self.trials.rejected.add(key)
        self._bracket(key).rejected(key)
        return self._follow(key, [])

    def progress(self) -> float:
        closed = sum(bracket.num_closed for bracket in self.brackets)
        return closed / sum(bracket.max_trials for bracket in self.brackets)

    def expected(self) -> Counter[int]:
        ends: Counter[int] = Counter()
        for bracket in self.brackets:
            ends.update(bracket.expected())
        return ends

    @property
    def rung_lengths(self) -> list[int]:
        return sorted({rung.length for bracket in self.brackets for rung in bracket.rungs})

    def lengths_of(self, key: int) -> list[int]:
        return sorted({rung.length for rung in self._bracket(key).rungs})

    def _bracket(self, key: int) -> Bracket:
        return self.brackets[self._bracket_of[key]]

    def _follow(self, key: int, verdicts: list[Verdict]) -> list[Action]:
        bracket = self._bracket(key)
        actions: list[Action] = [
            Stop(who) if verdict == "stop" else Extend(who, bracket.rungs[bracket.next_rung[who]].length)
            for verdict, who in verdicts
        ]
        known = {key} | {who for _, who in verdicts}
        self.trials.ended |= {who for who in known if who not in bracket.next_rung}
        return actions + self._fill()

    def _fill(self) -> list[Action]:
        actions: list[Action] = []
        for index, bracket in enumerate(self.brackets):
            while bracket.wants_trial:
                create = self._create(length=bracket.first_length)
                bracket.add(create.key)
                self._bracket_of[create.key] = index
                actions.append(create)
        if not actions and all(bracket.is_done for bracket in self.brackets):
            actions.append(Finish())
        return actions

    def _snapshot(self) -> Snapshot:
        owners = [self._bracket_of[key] for key in range(self.trials.created)]
        return {"brackets": [bracket.snapshot() for bracket in self.brackets], "owners": owners}

    def _restore(self, snapshot: Snapshot) -> None:
        for bracket, kept in zip(self.brackets, snapshot["brackets"], strict=True):
            bracket.restore(kept)
        self._bracket_of = dict(enumerate(snapshot["owners"]))


class AshaSearcher(BracketSearcher):
    """One bracket."""

    settings_type: ClassVar[type[SearcherSettings]] = AshaSettings

    def __init__(self, settings: AshaSettings, *, space: Space, seed: int) -> None:
        bracket = (PromotionBracket if settings.promote else StoppingBracket)(
            max_trials=settings.max_trials,
            max_concurrent=settings.max_concurrent_trials,
            max_length=settings.max_length.count,
            num_rungs=settings.num_rungs,
            divisor=settings.divisor,
        )
        super().__init__([bracket], space=space, seed=seed)


class AdaptiveAshaSearcher(BracketSearcher):
    """Brackets as the mode asks for, the one with the most rungs first."""

    settings_type: ClassVar[type[SearcherSettings]] = AdaptiveAshaSettings

    def __init__(self, settings: AdaptiveAshaSettings, *, space: Space, seed: int) -> None:
        rungs = bracket_rungs(settings)
        trials = share_trials(settings.max_trials, rungs, divisor=settings.divisor)
        kind = PromotionBracket if settings.promote else StoppingBracket
        concurrent = share_evenly(settings.max_concurrent_trials, len(trials))
        brackets = [
            kind(
                max_trials=max_trials,
                max_concurrent=max_concurrent,
                max_length=settings.max_length.count,
                num_rungs=num_rungs,
                divisor=settings.divisor,
            )
            for num_rungs, max_trials, max_concurrent in zip(rungs, trials, concurrent, strict=False)
        ]
        super().__init__(brackets, space=space, seed=seed)


def bracket_rungs(settings: AdaptiveAshaSettings) -> list[int]:
    """How many rungs each bracket has, the most first."""
    if settings.bracket_rungs:
        return sorted(settings.bracket_rungs, reverse=True)
    most = min(
        settings.max_rungs,
        whole_log(settings.max_length.count, settings.divisor) + 1,
        whole_log(settings.max_trials, settings.divisor) + 1,
    )
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[settings.mode]
    return list(range(most, fewest - 1, -1))


def share_trials(max_trials: int, rungs: Sequence[int], *, divisor: float) -> list[int]:
    """Trials of each bracket: in proportion to divisor^(n-1)/n, at least one, what is left to the first."""
    used = rungs[:max_trials]
    weights = [divisor ** (n - 1) / n for n in used]
    shares = [max(int(max_trials * weight / sum(weights)), 1) for weight in weights]
    shares[0] += max(max_trials - sum(shares), 0)
    while sum(shares) > max_trials:
        shares[shares.index(max(shares))] -= 1
    return shares


def share_evenly(count: int, num_parts: int) -> list[int]:
    """`count` in even parts, what is left to the first ones, each at least one; no limit (0) stays no limit."""
    if count == 0:
        return [0] * num_parts
    each, left = divmod(count, num_parts)
    return [max(each + (1 if part < left else 0), 1) for part in range(num_parts)]

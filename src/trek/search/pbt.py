"""Population based training: after each round the worst members are replaced by slightly changed copies of the best."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from trek.search.base import Action, Create, Extend, Finish, Searcher, Snapshot, Stop
from trek.search.checked_numbers import CheckedNumbers
from trek.search.metric_pairs import from_pairs, to_pairs
from trek.search.pool import MAX_REPLACEMENTS
from trek.search.searcher_settings import MAX_LENGTH, LengthSetting, SearcherSettings
from trek.search.space import Space


class ReplaceSettings(CheckedNumbers):
    """Which share of the population is replaced by the best after each round."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    truncate_fraction: float = Field(default=0.2, ge=0, le=0.5)
    """The share of the population that is replaced after each round."""


class ExploreSettings(CheckedNumbers):
    """How a copy's hyperparameters differ from its parent's."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    resample_probability: float = Field(default=0.2, ge=0, le=1)
    """How likely a parameter of a copy is drawn anew."""
    perturb_factor: float = Field(default=0.2, ge=0, le=1)
    """By how much the other numbers of a copy change, up or down."""


class PbtSettings(SearcherSettings):
    """Population based training: after each round the worst continue from a copy of the best."""

    name: Literal["pbt"]
    population_size: int = Field(ge=1, le=10_000)
    """Trials of a round."""
    num_rounds: int = Field(ge=1, le=1_000_000)
    """How many rounds there are."""
    length_per_round: LengthSetting
    """How long each trial trains in a round."""
    replace_function: ReplaceSettings = ReplaceSettings()
    """Which share of the population is replaced."""
    explore_function: ExploreSettings = ExploreSettings()
    """How copies differ from their parents."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        total = self.length_per_round.count * self.num_rounds
        if total > MAX_LENGTH:
            raise ValueError(
                f"{self.num_rounds} rounds of {self.length_per_round.count} {self.length_per_round.unit} are longer "
                f"than {MAX_LENGTH}. Lower num_rounds or length_per_round."
            )
        return self

    @property
    def max_length(self) -> LengthSetting:
        """What a trial that is never replaced trains."""
        return LengthSetting.model_validate({self.length_per_round.unit: self.length_per_round.count * self.num_rounds})


class PbtSearcher(Searcher):
    """A round ends when every member has reached its length; then all of them continue together."""

    settings_type: ClassVar[type[SearcherSettings]] = PbtSettings

    def __init__(self, settings: PbtSettings, *, space: Space, seed: int) -> None:
        super().__init__(space=space, seed=seed)
        self.settings = settings
        self.round = 0
        self.members: list[int] = []
        self.hparams: dict[int, dict[str, Any]] = {}
        self._reported: dict[int, float] = {}
        self._arrived: dict[int, float] = {}

    def start(self) -> list[Action]:
        return [self._make() for _ in range(self.settings.population_size)]

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        if key in self.members and key not in self.trials.ended:
            self._reported[key] = metric
        return []

    def reached(self, key: int) -> list[Action]:
        return self._arrive(key, self._reported.pop(key, math.inf))

    def failed(self, key: int) -> list[Action]:
        self.trials.failed.add(key)
        return self._arrive(key, math.inf)

    def rejected(self, key: int) -> list[Action]:
        """A draw is replaced by another draw; a changed copy that is rejected counts as the worst of its round."""
        is_draw = self.round == 0 and self.space.varies and len(self.trials.rejected) <= MAX_REPLACEMENTS
        if not is_draw or key not in self.members:
            return self.failed(key)
        self.trials.rejected.add(key)
        self.trials.ended.add(key)
        self.members.remove(key)
        return [self._make()]

    def progress(self) -> float:
        done = self.round + len(self._arrived) / self.settings.population_size
        return min(done / self.settings.num_rounds, 1.0)

    def expected(self) -> Counter[int]:
        rounds, length = self.settings.num_rounds, self.settings.length_per_round.count
        ends = Counter({length * end: self._num_replaced for end in range(1, rounds)})
        ends[length * rounds] += self.settings.population_size
        return +ends

    @property
    def rung_lengths(self) -> list[int]:
        length = self.settings.length_per_round.count
        return [length * end for end in range(1, self.settings.num_rounds + 1)]

    def lengths_of(self, key: int) -> list[int]:
        return [self._length]

    @property
    def _num_replaced(self) -> int:
        return int(self.settings.replace_function.truncate_fraction * self.settings.population_size)

    @property
    def _length(self) -> int:
        return self.settings.length_per_round.count * (self.round + 1)

    def _make(self) -> Create:
        create = self._create(length=self._length)
        self.members.append(create.key)
        self.hparams[create.key] = dict(create.hparams)
        return create

    def _arrive(self, key: int, metric: float) -> list[Action]:
        if key not in self.members or key in self._arrived or key in self.trials.ended:
            return []
        self._arrived[key] = metric
        if len(self._arrived) < len(self.members):
            return []
        return self._next_round()

    def _next_round(self) -> list[Action]:
        ranked = sorted(self.members, key=lambda key: (self._arrived[key], key))
        self._arrived = {}
        self.round += 1
        if self.round == self.settings.num_rounds:
            self.trials.ended |= set(ranked)
            return [*[Stop(key) for key in ranked], Finish()]
        failed = [key for key in ranked if key in self.trials.failed]
        worst = set(ranked[len(ranked) - self._num_replaced :]) | set(failed)
        best = [key for key in ranked if key not in worst]
        if not best:
            self.trials.ended |= set(ranked)
            return [*[Stop(key) for key in ranked], Finish()]
        self.members = list(best)
        self.trials.ended |= worst
        actions: list[Action] = [Stop(key) for key in ranked if key in worst]
        actions += [self._copy(best[place % len(best)]) for place in range(len(worst))]
        return actions + [Extend(key, self._length) for key in best]

    def _copy(self, parent: int) -> Create:
        key = self.trials.created
        self.trials.created += 1
        explore = self.settings.explore_function
        hparams = self.space.perturb(
            self.hparams[parent],
            rng=self._rng("perturb", key),
            resample_probability=explore.resample_probability,
            factor=explore.perturb_factor,
        )
        self.members.append(key)
        self.hparams[key] = hparams
        return Create(key, hparams, self._trial_seed(key), self._length, parent=parent)

    def _snapshot(self) -> Snapshot:
        return {
            "round": self.round,
            "members": list(self.members),
            "hparams": [[key, self.hparams[key]] for key in self.members],
            "reported": to_pairs(self._reported),
            "arrived": to_pairs(self._arrived),
        }

    def _restore(self, snapshot: Snapshot) -> None:
        self.round = snapshot["round"]
        self.members = list(snapshot["members"])
        self.hparams = {key: dict(hparams) for key, hparams in snapshot["hparams"]}
        self._reported = from_pairs(snapshot["reported"])
        self._arrived = from_pairs(snapshot["arrived"])

"""Searcher: decides which trials are made and how far each one trains. Pure: events in, actions out.

Contracts, for every Searcher:

- No clock, no I/O, no threads: the same events in the same order give the same actions.
- Hyperparameters of the trial with key k depend on the seed and k alone, so timing cannot change what is tried. A
  Searcher that `learns` also uses the results of trials that ended, and nothing else.
- `snapshot` is plain JSON; `restore` on a fresh Searcher of the same settings continues exactly there.
- Reports of a trial that was stopped, or of a length already judged, change nothing.
- Lengths are counted in the unit of the settings; the caller converts.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from trek.search.searcher_settings import SearcherSettings
from trek.search.space import Space

Snapshot = dict[str, Any]


@dataclass(frozen=True)
class Create:
    """Make a trial and train it to `length`; from the last checkpoint of trial `parent` where one is named."""

    key: int
    hparams: Mapping[str, Any]
    seed: int
    length: int
    parent: int | None = None


@dataclass(frozen=True)
class Extend:
    """Train a trial that reached its length on to `length`."""

    key: int
    length: int


@dataclass(frozen=True)
class Stop:
    """End a trial: it goes no further. A trial that ended already is closed by this."""

    key: int


@dataclass(frozen=True)
class Finish:
    """The search is over once the trials that still run have ended."""


Action = Create | Extend | Stop | Finish


@dataclass
class Trials:
    """What every searcher remembers of its trials, by key."""

    created: int = 0
    ended: set[int] = field(default_factory=set)
    """Trials that will never run again, for whatever reason."""
    rejected: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)

    def snapshot(self) -> Snapshot:
        """As plain JSON."""
        return {
            "created": self.created,
            "ended": sorted(self.ended),
            "rejected": sorted(self.rejected),
            "failed": sorted(self.failed),
        }

    @classmethod
    def restore(cls, snapshot: Snapshot) -> Trials:
        """From `snapshot`."""
        return cls(
            snapshot["created"], set(snapshot["ended"]), set(snapshot["rejected"]), set(snapshot.get("failed", ()))
        )


class Searcher(ABC):
    """See the module for the contracts. Every event may arrive for any trial at any time.

    A variant is made by `Variant(settings, space=…, seed=…)`, with settings of its `settings_type`.
    """

    settings_type: ClassVar[type[SearcherSettings]]
    """What the searcher block of a config may hold for this searcher."""
    learns: ClassVar[bool] = False
    """Whether what trials reported decides which hyperparameters are tried next."""

    @classmethod
    def check_space(cls, space: Space) -> None:
        """Raise `ConfigError` if `space` cannot be searched by this searcher; most take any."""
        return

    def __init__(self, *, space: Space, seed: int) -> None:
        self.space = space
        self.seed = seed
        self.trials = Trials()

    @abstractmethod
    def start(self) -> list[Action]:
        """The first actions."""

    def report(self, key: int, *, length: float, metric: float) -> list[Action]:
        """A validation of trial `key` after `length`.

        The caller passes the metric through `comparable`: smaller is better, and infinity, the worst, stands for every
        metric that is not finite.
        """
        return []

    @abstractmethod
    def reached(self, key: int) -> list[Action]:
        """Trial `key` ended by itself: it trained to its length."""

    @abstractmethod
    def failed(self, key: int) -> list[Action]:
        """Trial `key` failed for good; it counts as the worst."""

    @abstractmethod
    def rejected(self, key: int) -> list[Action]:
        """Trial `key` rejected its hyperparameters; it counts as never made, and is replaced."""

    @abstractmethod
    def progress(self) -> float:
        """The share of the search that is done, from 0 to 1, going by trials that ended."""

    @abstractmethod
    def expected(self) -> Counter[int]:
        """How many trials end at which length when every rung keeps exactly its share."""

    @property
    def rung_lengths(self) -> list[int]:
        """Lengths at which decisions are taken, the shortest first; empty where only the end counts."""
        return []

    def lengths_of(self, key: int) -> list[int]:
        """Lengths at which trial `key` has to be validated, the shortest first; its end is always validated."""
        return self.rung_lengths

    def snapshot(self) -> Snapshot:
        """Everything that decides the next actions, as plain JSON."""
        return {"trials": self.trials.snapshot(), **self._snapshot()}

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from `snapshot`."""
        self.trials = Trials.restore(snapshot["trials"])
        self._restore(snapshot)

    def _snapshot(self) -> Snapshot:
        return {}

    def _restore(self, snapshot: Snapshot) -> None:
        return None

    def _create(self, *, length: int) -> Create:
        key = self.trials.created
        self.trials.created += 1
        return Create(key, self._hparams(key), self._trial_seed(key), length)

    def _hparams(self, key: int) -> dict[str, Any]:
        return self.space.sample(self._rng("hparams", key))

    def _trial_seed(self, key: int) -> int:
        return self._rng("seed", key).randrange(2**31)

    def _rng(self, *purpose: object) -> random.Random:
        return random.Random(":".join(map(str, (self.seed, *purpose))))  # noqa: S311 - reproducible, not secret

"""Bracket: one ladder of asynchronous successive halving with its own share of trials. Pure; the searcher names trials.

Stopping: a trial runs on until a rung stops it. Promotion: a trial waits at a rung until it belongs to the best there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, Literal

from trek.search.metric_pairs import from_pairs, to_pairs
from trek.search.rungs import Rung, expected_ends, rung_lengths, survivors

Verdict = tuple[Literal["stop", "extend"], int]
"""What to do with which trial; `extend` goes to the next rung."""


class Bracket(ABC):
    """What both forms share: which trials were made, run, or have ended for good."""

    def __init__(
        self, *, max_trials: int, max_concurrent: int, max_length: int, num_rungs: int, divisor: float
    ) -> None:
        self.max_trials = max_trials
        self.max_concurrent = max_concurrent or max_trials
        self.divisor = divisor
        self.rungs = [Rung(length) for length in rung_lengths(max_length, num_rungs=num_rungs, divisor=divisor)]
        self.next_rung: dict[int, int] = {}
        """Which rung each trial reaches next; trials that have ended for good are not in it."""
        self.num_made = 0
        self.num_closed = 0

    @property
    @abstractmethod
    def first_length(self) -> int:
        """How far a new trial trains."""

    @property
    def wants_trial(self) -> bool:
        """Whether another trial should be made now."""
        return self.num_made < self.max_trials and self._num_busy < self.max_concurrent

    @property
    def is_done(self) -> bool:
        """Whether no trial of this bracket can continue."""
        return self.num_closed == self.max_trials

    @property
    @abstractmethod
    def _num_busy(self) -> int: ...

    def add(self, key: int) -> None:
        """A trial was made."""
        self.next_rung[key] = 0
        self.num_made += 1

    @abstractmethod
    def report(self, key: int, *, length: float, metric: float) -> list[Verdict]:
        """A validation of a trial."""

    @abstractmethod
    def reached(self, key: int) -> list[Verdict]:
        """A trial trained to its length and ended."""

    def failed(self, key: int) -> list[Verdict]:
        """A trial failed: it counts as the worst on the rung that it did not reach."""
        if key in self.next_rung:
            self.rungs[self.next_rung[key]].insert(key, math.inf)
            self._close(key)
        return []

    def rejected(self, key: int) -> None:
        """A trial rejected its hyperparameters: it counts as never made."""
        for rung in self.rungs:
            rung.remove(key)
        if self.next_rung.pop(key, None) is not None:
            self.num_made -= 1

    def expected(self) -> Counter[int]:
        """How many trials end at which length when every rung keeps exactly its share."""
        return expected_ends(self.max_trials, [rung.length for rung in self.rungs], divisor=self.divisor)

    def _close(self, key: int) -> None:
        del self.next_rung[key]
        self.num_closed += 1

    def snapshot(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "rungs": [rung.snapshot() for rung in self.rungs],
            "next_rung": [[key, rung] for key, rung in self.next_rung.items()],
            "num_made": self.num_made,
            "num_closed": self.num_closed,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """From `snapshot`."""
        self.rungs = [Rung.restore(rung) for rung in snapshot["rungs"]]
        self.next_rung = dict(snapshot["next_rung"])
        self.num_made = snapshot["num_made"]
        self.num_closed = snapshot["num_closed"]


class StoppingBracket(Bracket):
    """Trials aim at the full length and are stopped where a rung has better ones."""

    @property
    def first_length(self) -> int:
        return self.rungs[-1].length

    @property
    def _num_busy(self) -> int:
        return len(self.next_rung)

    def report(self, key: int, *, length: float, metric: float) -> list[Verdict]:
        """One report may pass several rungs; the top rung ends the trial."""
        while key in self.next_rung and length >= self.rungs[self.next_rung[key]].length - 1e-9:
            rung = self.rungs[self.next_rung[key]]
            place = rung.insert(key, metric)
            is_top = rung is self.rungs[-1]
            if is_top or place >= survivors(len(rung.keys), self.divisor):
                self._close(key)
                return [("stop", key)]
            self.next_rung[key] += 1
        return []

    def reached(self, key: int) -> list[Verdict]:
        if key in self.next_rung:
            self._close(key)  # it ended without a validation at the top
        return []


class PromotionBracket(Bracket):
    """Trials wait at a rung until they are promoted, by the rule of Determined.

    Of n trials at a rung, the best n / `divisor` may continue. A trial that arrives among these is promoted at once,
    even if as many were promoted before; otherwise an arrival that raises their number promotes the trial that is now
    the last of them.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Short searches have rungs of the same length; nobody can be promoted from one to the other.
        self.rungs = [Rung(length) for length in sorted({rung.length for rung in self.rungs})]
        self.metrics: dict[int, float] = {}
        self.waiting: set[int] = set()
        self.num_promoted = [0] * len(self.rungs)

    @property
    def first_length(self) -> int:
        return self.rungs[0].length

    @property
    def _num_busy(self) -> int:
        return len(self.next_rung) - len(self.waiting)

    def report(self, key: int, *, length: float, metric: float) -> list[Verdict]:
        if key in self.next_rung and length >= self.rungs[self.next_rung[key]].length - 1e-9:
            self.metrics[key] = metric
        return []

    def reached(self, key: int) -> list[Verdict]:
        if key not in self.next_rung or key in self.waiting:
            return []
        is_top = self.next_rung[key] == len(self.rungs) - 1
        if not is_top:
            self.waiting.add(key)
        verdicts = self._arrive(key, self.metrics.pop(key, math.inf))
        if is_top:
            self._close(key)
        return verdicts or self._finish_up()

    def failed(self, key: int) -> list[Verdict]:
        if key not in self.next_rung:
            return []
        verdicts: list[Verdict] = []
        if key in self.waiting:
            self.waiting.remove(key)
        else:
            verdicts = self._arrive(key, math.inf)
        self._close(key)
        return verdicts or self._finish_up()

    def rejected(self, key: int) -> None:
        super().rejected(key)
        self.waiting.discard(key)

    def _arrive(self, key: int, metric: float) -> list[Verdict]:
        """Rank a trial at the rung it reached; returns the promotion that follows, if any."""
        index = self.next_rung[key]
        rung = self.rungs[index]
        share_before = int(len(rung.keys) / self.divisor)
        place = rung.insert(key, metric, after_equals=True)
        share = int(len(rung.keys) / self.divisor)
        if place < share:
            chosen = key
        elif share > share_before:
            chosen = rung.keys[share_before]
        else:
            return []
        can_continue = chosen in self.waiting and self.next_rung[chosen] == index
        return [self._lift(chosen, index)] if can_continue else []

    def _finish_up(self) -> list[Verdict]:
        """Once nothing runs and nothing will be made: every rung promotes at least one, then those that wait end."""
        if self._num_busy or self.num_made < self.max_trials:
            return []
        for index in range(len(self.rungs) - 1):
            key = self._best_waiting(index)
            if self.num_promoted[index] == 0 and key is not None:
                return [self._lift(key, index)]
        done = sorted(self.waiting)
        self.waiting.clear()
        for key in done:
            self._close(key)
        return [("stop", key) for key in done]

    def _best_waiting(self, index: int) -> int | None:
        here = (key for key in self.rungs[index].keys if key in self.waiting and self.next_rung[key] == index)
        return next(here, None)

    def _lift(self, key: int, index: int) -> Verdict:
        self.num_promoted[index] += 1
        self.waiting.remove(key)
        self.next_rung[key] = index + 1
        return ("extend", key)

    def snapshot(self) -> dict[str, Any]:
        return {
            **super().snapshot(),
            "metrics": to_pairs(self.metrics),
            "waiting": sorted(self.waiting),
            "num_promoted": list(self.num_promoted),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        super().restore(snapshot)
        self.metrics = from_pairs(snapshot["metrics"])
        self.waiting = set(snapshot["waiting"])
        self.num_promoted = list(snapshot["num_promoted"])

"""The conformance suite of Searchers: what every one must do, in whatever order events arrive.

Derive a test class from `SearcherSuite` and give it `make`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from trek.search.base import Action, Create, Extend, Finish, Searcher, Stop


@dataclass
class SimulatedWorld:
    """Trials that run at random speeds, fail and reject as a seed decides; records what the Searcher asked for."""

    searcher: Searcher
    seed: int
    failure_rate: float = 0.0
    rejection_rate: float = 0.0
    targets: dict[int, int] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    hparams: dict[int, object] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    most_running: int = 0
    is_finished: bool = False

    def play(self, *, restore_every: int = 0, fresh: Searcher | None = None) -> SimulatedWorld:
        """Run to the end; with `restore_every` a snapshot is carried into `fresh` and back now and then."""
        self._obey(self.searcher.start())
        for count, actions in enumerate(self._events(), start=1):
            self._obey(actions)
            if restore_every and fresh is not None and count % restore_every == 0:
                kept = json.loads(json.dumps(self.searcher.snapshot(), allow_nan=False))
                fresh.restore(kept)
                self.searcher, fresh = fresh, self.searcher
        return self

    def _events(self) -> Iterator[list[Action]]:
        rng = random.Random(self.seed)  # noqa: S311 - reproducible, not secret
        while self.running:
            key = rng.choice(sorted(self.running))
            dice = rng.random()
            if dice < self.rejection_rate and self.lengths[key] == 0:
                self.running.remove(key)
                self.failed.add(key)
                yield self.searcher.rejected(key)
            elif dice < self.rejection_rate + self.failure_rate:
                self.running.remove(key)
                self.failed.add(key)
                yield self.searcher.failed(key)
            else:
                yield from self._train(key, rng)

    def _train(self, key: int, rng: random.Random) -> Iterator[list[Action]]:
        rungs = [rung for rung in self.searcher.rung_lengths if rung > self.lengths[key]]
        self.lengths[key] = min([*rungs[:1], self.targets[key]])
        yield self.searcher.report(key, length=self.lengths[key], metric=rng.random())
        if key in self.running and self.lengths[key] == self.targets[key]:
            self.running.remove(key)
            yield self.searcher.reached(key)

    def _obey(self, actions: list[Action]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, Create):
                assert action.key not in self.targets, "a key is used once"
                assert action.parent is None or action.parent in self.targets
                self.hparams[action.key] = action.hparams
                self.lengths[action.key] = self.lengths.get(action.parent, 0) if action.parent is not None else 0
                self._run(action.key, action.length)
            elif isinstance(action, Extend):
                assert action.key not in self.running | self.stopped | self.failed, "only a waiting trial is extended"
                assert action.length > self.lengths[action.key]
                self._run(action.key, action.length)
            elif isinstance(action, Stop):
                assert action.key in self.targets
                self.running.discard(action.key)
                self.stopped.add(action.key)
            else:
                assert not self.is_finished, "a search finishes once"
                self.is_finished = True
        self.most_running = max(self.most_running, len(self.running))

    def _run(self, key: int, length: int) -> None:
        self.targets[key] = length
        self.running.add(key)


class SearcherSuite:
    """Tests for one Searcher; `make` gives a fresh one each time, with the same settings and seed."""

    def make(self) -> Searcher:
        """A fresh Searcher."""
        raise NotImplementedError

    def test_it_finishes_and_leaves_nobody_waiting(self) -> None:
        """Whatever the metrics are."""
        for seed in range(20):
            world = SimulatedWorld(self.make(), seed).play()
            assert world.is_finished
            assert set(world.targets) == world.searcher.trials.ended

    def test_it_finishes_though_trials_fail_and_reject(self) -> None:
        """Whatever goes wrong."""
        for seed in range(20):
            world = SimulatedWorld(self.make(), seed, failure_rate=0.1, rejection_rate=0.1).play()
            assert world.is_finished
            assert set(world.targets) == world.searcher.trials.ended

    def test_the_same_events_give_the_same_actions(self) -> None:
        """No clock, no chance."""
        assert SimulatedWorld(self.make(), 3).play().actions == SimulatedWorld(self.make(), 3).play().actions

    def test_a_restored_snapshot_continues_exactly(self) -> None:
        """At any event."""
        plain = SimulatedWorld(self.make(), 5, failure_rate=0.05, rejection_rate=0.05).play()
        for every in (1, 3):
            carried = SimulatedWorld(self.make(), 5, failure_rate=0.05, rejection_rate=0.05)
            carried.play(restore_every=every, fresh=self.make())
            assert carried.actions == plain.actions

    def test_hyperparameters_do_not_depend_on_timing(self) -> None:
        """The trial with key k is the same trial in every run, unless it is a copy or chosen by what was learned."""
        if self.make().learns:
            return
        one, other = SimulatedWorld(self.make(), 1).play(), SimulatedWorld(self.make(), 2).play()
        copies = {a.key for w in (one, other) for a in w.actions if isinstance(a, Create) and a.parent is not None}
        for key in (one.hparams.keys() & other.hparams.keys()) - copies:
            assert one.hparams[key] == other.hparams[key]

    def test_events_of_ended_trials_change_nothing(self) -> None:
        """A report may come late, an end twice."""
        world = SimulatedWorld(self.make(), 7).play()
        before = world.searcher.snapshot()
        for key in list(world.targets)[:5]:
            assert _without_finish(world.searcher.report(key, length=10**9, metric=-1.0)) == []
            assert _without_finish(world.searcher.reached(key)) == []
        assert world.searcher.snapshot() == before

    def test_progress_goes_from_nothing_to_all(self) -> None:
        """And never leaves that range."""
        searcher = self.make()
        assert searcher.progress() == 0.0
        assert SimulatedWorld(searcher, 2).play().searcher.progress() == 1.0


def _without_finish(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Finish)]

"""Instruments: what watches a run without taking part in it. Progress bars, profiler, hang watch, deterministic mode.

They are opened and closed with the Traveler, and know nothing of models, data or metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from trek.data.loaders.base import do_nothing
from trek.train.jobs.hang_watch import HangWatch
from trek.train.loop.determinism import Determinism
from trek.train.loop.profiling import Profiler
from trek.train.loop.progress import Bar, open_bar
from trek.train.settings import TrainSettings
from trek.world import World


class Instruments:
    """The instruments that `settings` switch on, on one rank of `world`; only the leader shows bars and profiles."""

    def __init__(self, settings: TrainSettings, *, world: World) -> None:
        self.shows_progress = settings.show_progress and world.is_leader
        self._settings = settings
        self._determinism = Determinism() if settings.deterministic else None
        self._profiler = Profiler(settings.profile) if settings.profile is not None and world.is_leader else None
        self._hang_watch: HangWatch | None = None
        if settings.hang_s is not None and world.is_distributed:
            self._hang_watch = HangWatch(world, hang_s=settings.hang_s, on_hang=settings.on_hang)
        self.beat: Callable[[], None] = self._hang_watch.beat if self._hang_watch else do_nothing
        """Call it after every batch."""
        self.unhurried: Callable[[], AbstractContextManager[None]] = nullcontext
        """A context around work on one rank that may take longer than a batch."""
        if self._hang_watch is not None:
            self.unhurried = self._hang_watch.unhurried

    def show_progress_of(self, world: World) -> None:
        """This process has another rank now: the leader shows the progress."""
        self.shows_progress = self._settings.show_progress and world.is_leader

    def advance(self, batches: int) -> None:
        """Start or end the trace, if due after `batches`."""
        if self._profiler:
            self._profiler.advance(batches)

    def next_batch(self, batches: int) -> float:
        """The number of batches after which `advance` must be called next; infinity for never."""
        traced = self._profiler.boundaries() if self._profiler else ()
        return min((batch for batch in traced if batch > batches), default=math.inf)

    def bar(self, label: str, total: int | None, *, start: int = 0) -> AbstractContextManager[Bar]:
        """A progress bar from `start` to `total`."""
        return open_bar(label, total=total, start=start, is_shown=self.shows_progress)

    def close(self) -> None:
        """Write the trace, end the hang watch, and restore torch's switches."""
        with ExitStack() as stack:
            for part in (self._profiler, self._hang_watch, self._determinism):
                if part is not None:
                    stack.callback(part.close)

"""TrialHost: what a run takes over from the trial that its program is run for.

Whoever runs programs as trials names a function in TREK_HOST that gives one; this room does not know who that is. The
outermost entries (`trek.fit`, `trek.run`, a Traveler without a World) look for it and pass it on.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trek.train.loggers.base import Logger
from trek.train.loop.stopping import StopRequest
from trek.train.settings import TrainSettings
from trek.world import World

VARIABLE = "TREK_HOST"
"""Holds `module:function`; the function is called as `find_host` is, and gives a TrialHost or None."""


@dataclass(frozen=True)
class TrialHost:
    """What is the trial's to decide; it takes the place of what the program says itself."""

    settings: Mapping[str, Any]
    """Fields of TrainSettings: how far to train, the seed, what to keep."""
    folder: Path
    """Where what the run writes lies, but for checkpoints."""
    checkpoint_dir: Path | str
    resume: Path | Literal["latest"]
    loggers: Sequence[Logger]
    """Told besides the program's own."""

    def over(self, own: TrainSettings) -> TrainSettings:
        """The program's settings with the trial's in their place."""
        return TrainSettings.of(own, **self.settings)


def find_host(world: World, *, stop: StopRequest, environ: Mapping[str, str] = os.environ) -> TrialHost | None:
    """The TrialHost of this program, which may ask it to `stop`; None where nobody runs it as a trial."""
    named = environ.get(VARIABLE)
    if not named:
        return None
    module, _, function = named.partition(":")
    host: TrialHost | None = getattr(importlib.import_module(module), function)(world, stop=stop)
    return host

"""TrialHost: what a Traveler takes over from the trial that its program is run for.

Who runs programs as trials names a function in TREK_HOST that gives one; this room does not know who that is.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trek.train.checkpointing.keeping import KeepPolicy
from trek.train.length import Length
from trek.train.loggers.base import Logger
from trek.train.loop.schedule import Schedule
from trek.train.loop.stopping import StopRequest
from trek.train.metrics.goal import Goal
from trek.world import World

VARIABLE = "TREK_HOST"
"""Holds `module:function`; the function is called as `find_host` is, and gives a TrialHost or None."""


@dataclass(frozen=True)
class TrialHost:
    """Settings of a Traveler that are the trial's to make."""

    length: Schedule
    """How far to train; it takes the place of what the program says itself."""
    seed: int
    checkpoint_dir: Path | str
    checkpoint_period: Length
    keep: KeepPolicy
    goal: Goal
    resume: Path | Literal["latest"]
    loggers: Sequence[Logger]
    """Told besides the program's own."""


def find_host(world: World, *, stop: StopRequest, environ: Mapping[str, str] = os.environ) -> TrialHost | None:
    """The TrialHost of this program, which may ask it to `stop`; None where nobody runs it as a trial."""
    named = environ.get(VARIABLE)
    if not named:
        return None
    module, _, function = named.partition(":")
    host: TrialHost | None = getattr(importlib.import_module(module), function)(world, stop=stop)
    return host

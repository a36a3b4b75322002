"""TrialHost: the settings that a run takes from the trial its program runs in.

A caller that runs programs as trials sets TREK_HOST to the name of a function that returns one; this room does not
depend on that caller. The entry points (`trek.fit`, `trek.run`, a Traveler without a World) read it and pass it on.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trek.train.checkpointing.stores import Storage
from trek.train.loggers.base import JobIdentity, Logger
from trek.train.loop.stopping import StopRequest
from trek.train.settings import TrainSettings
from trek.world import World

VARIABLE = "TREK_HOST"
"""Holds `module:function`; the function takes the arguments of `find_host` and returns a TrialHost or None."""


@dataclass(frozen=True)
class TrialHost:
    """Settings that the trial decides; they override those of the program."""

    settings: Mapping[str, Any]
    """Fields of TrainSettings: how far to train, the seed, what to keep."""
    folder: Path
    """Where the run writes its files, except for checkpoints."""
    checkpoint_dir: Storage
    owner: str
    """The trial's id in its checkpoints. Which of them are kept is decided by whoever runs the trial."""
    resume: Path | Literal["latest"]
    loggers: Sequence[Logger]
    """Added to the program's loggers."""
    job: JobIdentity | None = None
    """The trial, as loggers identify it."""

    def apply_to(self, settings: TrainSettings) -> TrainSettings:
        """The program's `settings`, overridden by the trial's."""
        return TrainSettings.of(settings, **self.settings)


def find_host(world: World, *, stop: StopRequest, environ: Mapping[str, str] = os.environ) -> TrialHost | None:
    """The TrialHost of this program, which may request a stop through `stop`; None outside a trial."""
    address = environ.get(VARIABLE)
    if not address:
        return None
    module, _, function = address.partition(":")
    host: TrialHost | None = getattr(importlib.import_module(module), function)(world, stop=stop)
    return host

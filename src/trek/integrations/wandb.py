"""Weights & Biases as a logger, offline: `loggers=["wandb"]`. Needs the `wandb` extra.

Owns the settings; what is written is in `wandb_recorder`, which runs in a process of its own. Nothing is sent anywhere:
`wandb sync` uploads what was written, when you say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from trek.distribution import package_missing
from trek.train.loggers import BackgroundLogger


class WandbLogger(BackgroundLogger):
    """One W&B run for a job, in `<folder>/wandb`; trials of an experiment form a group.

    `project` is by default the name of the Trek experiment, or "trek".
    """

    recorder: ClassVar[str] = "trek.integrations.wandb_recorder:WandbRecorder"
    word: ClassVar[str] = "Weights & Biases"
    environment: ClassVar[Mapping[str, str]] = {"WANDB_ERROR_REPORTING": "false"}

    def __init__(self, folder: Path, *, project: str | None = None, tags: Sequence[str] = ()) -> None:
        if find_spec("wandb") is None:
            raise package_missing("logger 'wandb'", "wandb", extra="wandb")
        super().__init__(folder=str(folder), project=project, tags=list(tags))

    @classmethod
    def open(cls, folder: Path, *, project: str | None = None, tags: Sequence[str] = ()) -> WandbLogger:
        """The settings."""
        return cls(folder, project=project, tags=tags)

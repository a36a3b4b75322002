"""The loggers by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trek.registry import Registry

if TYPE_CHECKING:
    from trek.train.loggers.base import Logger

LOGGERS: Registry[type[Logger]] = Registry(
    "loggers",
    {
        "csv": "trek.train.loggers.csv:CSVLogger",
        "jsonl": "trek.train.loggers.jsonl:JSONLLogger",
        "tensorboard": "trek.train.loggers.tensorboard:TensorBoardLogger",
    },
    word="logger",
    extras={"tensorboard": "tensorboard"},
)


def open_logger(name: str, *, folder: Path) -> Logger:
    """The Logger called `name`, writing under `folder`."""
    made: Logger = LOGGERS.load(name)(folder)  # type: ignore[call-arg]
    return made

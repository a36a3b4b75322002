"""Loggers by name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from trek.errors import ConfigError
from trek.registry import Registry
from trek.train.loggers.base import Logger

LOGGERS: Registry[type[Logger]] = Registry(
    "loggers",
    {
        "csv": "trek.train.loggers.csv:CSVLogger",
        "jsonl": "trek.train.loggers.jsonl:JSONLLogger",
        "tensorboard": "trek.train.loggers.tensorboard:TensorBoardLogger",
    },
    word="logger",
    base="trek.train.loggers.base:Logger",
)


def open_logger(name: str, *, folder: Path, **settings: Any) -> Logger:
    """The logger called `name` for a run whose files are in `folder`; `settings` are the logger's own."""
    kind = LOGGERS.load(name)
    _, *known = inspect.signature(kind.open).parameters
    for setting in settings:
        if setting not in known:
            remedy = f"It has: {', '.join(known)}." if known else "It has no settings."
            raise ConfigError(f"logger {name!r} has no setting {setting!r}. {remedy}")
    return kind.open(folder, **settings)

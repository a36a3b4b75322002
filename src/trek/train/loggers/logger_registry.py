"""Loggers by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trek.registry import Registry
from trek.train.loggers.base import Logger

LOGGERS: Registry[type[Logger]] = Registry(
    "loggers",
    {
        "csv": "trek.train.loggers.csv:CSVLogger",
        "mlflow": "trek.integrations.mlflow:MLflowLogger",
        "wandb": "trek.integrations.wandb:WandbLogger",
        "jsonl": "trek.train.loggers.jsonl:JSONLLogger",
        "tensorboard": "trek.train.loggers.tensorboard:TensorBoardLogger",
    },
    word="logger",
    base="trek.train.loggers.base:Logger",
)


def open_logger(name: str, *, folder: Path, **settings: Any) -> Logger:
    """The logger called `name` for a run whose files are in `folder`, with the logger's `settings`."""
    kind = LOGGERS.load(name)
    LOGGERS.check_settings(name, {"folder": folder, **settings}, taken_by=kind.open)
    return kind.open(folder=folder, **settings)

"""Loggers as a user chooses them: objects of their own, and names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trek.errors import ConfigError
from trek.train.loggers.base import Logger
from trek.train.loggers.logger_registry import LOGGERS, open_logger


def split_loggers(chosen: Sequence[Logger | str]) -> tuple[tuple[str, ...], list[Logger]]:
    """The names among `chosen`, and the objects."""
    if isinstance(chosen, str | Logger):
        raise ConfigError(f"loggers must be a list, got {chosen!r}. Write loggers=[…] around it.")
    names = tuple(LOGGERS.check(one) for one in chosen if isinstance(one, str))
    objects = [one for one in chosen if not isinstance(one, str)]
    for one in objects:
        if not isinstance(one, Logger):
            raise ConfigError(f"a logger must be a trek Logger or a name, got {type(one).__name__}.")
    return names, [one for one in objects if isinstance(one, Logger)]


def open_loggers(names: Sequence[str], *, folder: Path) -> list[Logger]:
    """Those of `names`, writing under `folder`."""
    return [open_logger(name, folder=folder) for name in names]

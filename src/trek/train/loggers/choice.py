"""Loggers as a user chooses them: by name, or as objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trek.errors import ConfigError
from trek.train.loggers.base import Logger
from trek.train.loggers.logger_registry import LOGGERS, open_logger


def split_loggers(chosen: Sequence[Logger | str]) -> tuple[tuple[str, ...], list[Logger]]:
    """Split `chosen` into names and objects."""
    if isinstance(chosen, str | Logger | Mapping) or not isinstance(chosen, Sequence | Iterator):
        raise ConfigError(f"loggers must be a list, got {chosen!r}. Write loggers=[…].")
    chosen = list(chosen)
    names = tuple(LOGGERS.check(one) for one in chosen if isinstance(one, str))
    objects = [one for one in chosen if not isinstance(one, str)]
    for one in objects:
        if not isinstance(one, Logger):
            raise ConfigError(f"a logger must be a trek.train.loggers.Logger or a name, got {type(one).__name__}.")
    return names, [one for one in objects if isinstance(one, Logger)]


def open_loggers(names: Sequence[str], *, folder: Path) -> list[Logger]:
    """The loggers called `names`, writing to `folder`."""
    return [open_logger(name, folder=folder) for name in names]

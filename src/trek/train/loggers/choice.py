"""Loggers as a user chooses them: by name, by name with settings, or as objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.errors import ConfigError
from trek.train.loggers.base import Logger
from trek.train.loggers.logger_registry import LOGGERS, open_logger

LoggerChoice = str | dict[str, Any]
"""A name, or a dict with the `name` and the logger's settings."""


def split_loggers(chosen: Sequence[Logger | LoggerChoice]) -> tuple[tuple[LoggerChoice, ...], list[Logger]]:
    """Split `chosen` into names, with their settings, and objects."""
    if isinstance(chosen, str | Logger | Mapping) or not isinstance(chosen, Sequence | Iterator):
        raise ConfigError(f"loggers must be a list, got {chosen!r}. Write loggers=[…].")
    chosen = list(chosen)
    named: list[LoggerChoice] = [check_choice(one) for one in chosen if isinstance(one, str | dict)]
    objects = [one for one in chosen if not isinstance(one, str | dict)]
    for one in objects:
        if not isinstance(one, Logger):
            raise ConfigError(f"a logger must be a trek.train.loggers.Logger or a name, got {type(one).__name__}.")
    return tuple(named), objects


def check_choice(chosen: LoggerChoice) -> LoggerChoice:
    """`chosen`, if there is such a logger with such settings."""
    if isinstance(chosen, str):
        return LOGGERS.check(chosen)
    name, settings = _parts(chosen)
    if settings:
        kind = LOGGERS.load(name)
        LOGGERS.check_settings(name, {"folder": None, **settings}, taken_by=kind.open)
    return chosen


def open_loggers(chosen: Sequence[LoggerChoice], *, folder: Path) -> list[Logger]:
    """The loggers that were `chosen` by name, writing to `folder`."""
    parts = [_parts(one) for one in chosen]
    return [open_logger(name, folder=folder, **settings) for name, settings in parts]


def _parts(chosen: LoggerChoice) -> tuple[str, dict[str, Any]]:
    if isinstance(chosen, str):
        return chosen, {}
    if "name" not in chosen:
        raise ConfigError(f"a logger with settings must have a 'name', got {chosen!r}.")
    return LOGGERS.check(chosen["name"]), {key: value for key, value in chosen.items() if key != "name"}

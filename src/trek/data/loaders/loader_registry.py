"""Loaders of other packages, by the data that they accept."""

from __future__ import annotations

from typing import Any

from trek.data.loaders.base import Loader
from trek.errors import InputError
from trek.registry import Registry

LOADERS: Registry[type[Loader]] = Registry("loaders", {}, word="loader", base="trek.data.loaders.base:Loader")


def find_loader(dataset: Any) -> type[Loader] | None:
    """The loader of another package that accepts `dataset`; None if there is none."""
    found = [name for name in LOADERS.plugin_names() if LOADERS.load(name).accepts(dataset)]
    if len(found) > 1:
        raise InputError(
            f"data of type {type(dataset).__name__} is accepted by several loaders: {', '.join(found)}. "
            "Remove the packages of all but one."
        )
    return LOADERS.load(found[0]) if found else None

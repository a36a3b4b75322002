"""ModuleNames: one module of another project, and its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModuleNames:
    """A module, the one here that has its names, and the names that it has or has not."""

    original: str
    here: str | None
    covered: Mapping[str, str] = field(default_factory=dict)
    """Names that exist in `here`, and what of Trek each is over."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Names that do not exist here, and why, or what to use instead."""

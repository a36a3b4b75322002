"""Public names that are imported on first use, so that importing a package costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package`: `homes` says for every public name the module that holds it, or that it is."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(homes[name])
        is_module = homes[name].endswith(f".{name}") and not hasattr(module, name)
        value = module if is_module else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get

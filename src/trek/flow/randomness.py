"""The random generators of a step: Python's, NumPy's and torch's global ones start from the step's own seed.

So a step draws the same numbers whichever steps ran before it in the run, and again when the run is resumed. Nothing is
imported for it: a library that is imported later is seeded then.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def seed_of(name: str, *, rank: int = 0) -> int:
    """The seed of the step called `name`, different for every rank; 32 bits, which is what NumPy takes."""
    return int.from_bytes(hashlib.sha256(f"{name}:{rank}".encode()).digest()[:4], "big")


def seed_generators(seed: int) -> None:
    """Seed Python's generator now, and those of NumPy and torch now or when they are imported."""
    random.seed(seed)
    for name, seeder in _SEEDERS.items():
        if name in sys.modules:
            seeder(sys.modules[name], seed)
    sys.meta_path.insert(0, _SeedingFinder(seed))


def same_hashes(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that make sets of text have the same order in every process of steps, unless the user decided that."""
    return {} if environ.get("PYTHONHASHSEED") else {"PYTHONHASHSEED": "0"}


class _SeedingFinder(MetaPathFinder):
    """Finds what the other finders find, and seeds NumPy and torch once they are loaded."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that has a generator, with a loader that seeds it; None for any other."""
        if name not in _SEEDERS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            self._seed_after(spec.loader, _SEEDERS[name])
        return spec

    def _seed_after(self, loader: Any, seeder: Callable[[Any, int], None]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            seeder(module, self._seed)

        loader.exec_module = exec_module


def _seed_numpy(module: Any, seed: int) -> None:
    module.seed(seed)


def _seed_torch(module: Any, seed: int) -> None:
    module.manual_seed(seed)


_SEEDERS: dict[str, Callable[[Any, int], None]] = {"numpy.random": _seed_numpy, "torch": _seed_torch}

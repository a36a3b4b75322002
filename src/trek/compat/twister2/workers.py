"""Workers: the processes of a job, joined once for all of its parts, over the strategy of a `trek.Traveler`."""

from __future__ import annotations

import atexit
from typing import Any

import trek


class Workers:
    """What passes values and tensors between the workers."""

    _opened: Workers | None = None

    def __init__(self) -> None:
        self._traveler = trek.Traveler(show_progress=False)
        self._is_closed = False

    @classmethod
    def open(cls) -> Workers:
        """The workers of this process; joined at the first call, left when the program ends."""
        if cls._opened is None:
            cls._opened = cls()
            atexit.register(cls._opened.close)
        return cls._opened

    @property
    def world(self) -> trek.World:
        """This worker among them."""
        return self._traveler.world

    def gather(self, value: Any) -> list[Any]:
        """What every worker passes, by worker: plain values, arrays and tensors."""
        return list(self._traveler.strategy.gather(value))

    def close(self) -> None:
        """Leave the others."""
        if not self._is_closed:
            self._is_closed = True
            type(self)._opened = None
            self._traveler.close()

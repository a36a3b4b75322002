"""Maps: steps that are divided into parts once the list they go over is known. Runs nothing."""

from __future__ import annotations

from typing import Any

from trek.errors import InputError
from trek.flow.graph import FunctionWork, MapWork, Step


class Maps:
    """The parts of one run's maps."""

    def __init__(self) -> None:
        self._parts: dict[Step, list[Step]] = {}
        self._wholes: dict[Step, Step] = {}

    def divide(self, step: Step, items: Any) -> list[Step]:
        """A step for each item."""
        assert isinstance(step.work, MapWork)
        if not isinstance(items, list | tuple):
            raise InputError(f"expected a list to map over, got a {type(items).__name__}.")
        self._parts[step] = [
            Step(f"{step.name}[{index}]", FunctionWork(step.work.function, (item,), step.work.kwargs), step.settings)
            for index, item in enumerate(items)
        ]
        self._wholes |= dict.fromkeys(self._parts[step], step)
        return self._parts[step]

    def parts(self, step: Step) -> list[Step]:
        """The parts of a map."""
        return self._parts[step]

    def whole(self, step: Step) -> Step:
        """The map that `step` is a part of; itself if it is none."""
        return self._wholes.get(step, step)

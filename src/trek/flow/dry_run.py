"""A dry run: which steps a run would run, and why, as far as that is known before any of them has run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trek.flow.artefacts import NOTHING, Stored, join_parts
from trek.flow.flow_reader import FlowReader
from trek.flow.flow_store import FlowStore
from trek.flow.graph import MapWork, Output, Step, conditional_steps, has_lost_branches, references, substitute
from trek.flow.kept_results import KeptResults
from trek.flow.keys import Keymaker, make_key
from trek.flow.maps import Maps
from trek.flow.memory import takers_in_memory
from trek.flow.parameters import Param
from trek.flow.run_plan import RunPlan

Action = Literal["run", "keep", "skip", "depends"]


@dataclass(frozen=True)
class Foreseen:
    """What would happen to one step: it runs, is kept, is skipped, or that depends on what another step gives."""

    name: str
    action: Action
    reason: str


def foresee(plan: RunPlan, *, name: str, home: Path, params: Mapping[str, Any]) -> list[Foreseen]:
    """What a run of the plan would do with each step. Records nothing."""
    with _records(name, home) as store:
        return list(_Forecast(plan, store=store, params=params).steps())


class _Forecast:
    def __init__(self, plan: RunPlan, *, store: FlowReader, params: Mapping[str, Any]) -> None:
        self._plan, self._params = plan, params
        self._stored: dict[Output, Stored] = {}
        self._keys = Keymaker(params, self._stored, home=store.home)
        in_memory = list(takers_in_memory(plan.steps, params=params))
        self._kept = KeptResults(plan, store=store, previous={}, in_memory=in_memory)
        self._maps = Maps()
        self._skipped: set[Step] = set()
        self._conditional = conditional_steps(plan.steps)

    def steps(self) -> Iterator[Foreseen]:
        """In the order of their definition, in which every step comes after those it waits for."""
        for step in self._plan.steps:
            yield self._foresee(step)

    def _foresee(self, step: Step) -> Foreseen:
        open_inputs = [one.step.name for one in step.inputs() if one not in self._stored]
        open_condition = step.when is not None and not self._are_known(step.when)
        if not open_condition and not self._is_wanted(step):
            return self._skip(step)
        if self._maps.whole(step) in self._plan.forced and not open_condition:
            return Foreseen(step.name, "run", "it was asked for")
        if open_inputs:
            names = ", ".join(dict.fromkeys(open_inputs))
            return Foreseen(step.name, "depends", f"runs if what {names} gives has changed")
        return self._divide(step) if isinstance(step.work, MapWork) else self._look_up(step)

    def _skip(self, step: Step) -> Foreseen:
        self._skipped.add(step)
        self._stored |= {Output(step, index): NOTHING for index in range(step.num_outputs)}
        return Foreseen(step.name, "skip", "its condition is not met")

    def _are_known(self, value: Any) -> bool:
        return all(isinstance(one, Param) or one in self._stored for one in references(value))

    def _is_wanted(self, step: Step) -> bool:
        if has_lost_branches(step, skipped=self._skipped, conditional=self._conditional):
            return False
        return step.when is None or bool(substitute(step.when, self._value_of))

    def _value_of(self, reference: Any) -> Any:
        return self._params[reference.name] if isinstance(reference, Param) else self._stored[reference].load()

    def _look_up(self, step: Step) -> Foreseen:
        components = self._keys.components(step)
        key = make_key(components)
        outputs, reason = self._kept.find(step, whole=self._maps.whole(step), key=key, components=components)
        if outputs is None:
            return Foreseen(step.name, "run", reason)
        self._stored |= {Output(step, index): stored for index, stored in enumerate(outputs)}
        return Foreseen(step.name, "keep", reason)

    def _divide(self, step: Step) -> Foreseen:
        """A map over a list that is known: it is kept if all its parts are."""
        assert isinstance(step.work, MapWork)
        parts = self._maps.divide(step, substitute(step.work.items, self._value_of))
        found = [self._look_up(part) for part in parts]
        running = [one for one in found if one.action == "run"]
        if running:
            return Foreseen(step.name, "run", f"{len(running)} of {len(parts)} items: {running[0].reason}")
        self._stored[Output(step)] = join_parts([self._stored[Output(part)] for part in parts])
        return Foreseen(step.name, "keep", f"{len(parts)} items")


@contextmanager
def _records(name: str, home: Path) -> Iterator[FlowReader]:
    """The records of the flow; empty ones, which are removed again, if it has never been run."""
    if (home / "flows" / name / "flow.db").exists():
        with closing(FlowReader(name, home=home)) as store:
            yield store
        return
    with (
        tempfile.TemporaryDirectory(prefix="trek-dry-run-") as empty,
        closing(FlowStore(name, home=Path(empty))) as store,
    ):
        yield store


def describe(foreseen: Sequence[Foreseen]) -> str:
    """A line for each step, and how many would run."""
    words = {
        "run": ("▶", "would run"),
        "keep": ("=", "is kept"),
        "skip": ("-", "is skipped"),
        "depends": ("?", "may run"),
    }
    lines = [f"{words[one.action][0]} {one.name}: {words[one.action][1]} ({one.reason})" for one in foreseen]
    num_run = sum(one.action == "run" for one in foreseen)
    num_open = sum(one.action == "depends" for one in foreseen)
    return "\n".join([*lines, f"{num_run} of {len(foreseen)} steps would run, {num_open} depend on what others give."])

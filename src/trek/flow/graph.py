"""The graph: steps, and the references by which one step's arguments name another's outputs. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from trek.errors import InputError
from trek.flow.parameters import Param, Settings


@dataclass(frozen=True)
class FunctionWork:
    """A function to call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def values(self) -> dict[str, Any]:
        """What may hold references."""
        return {"args": self.args, "kwargs": dict(self.kwargs)}


@dataclass(frozen=True)
class CommandWork:
    """A command line to run, by every worker of the step. Outputs are files that it writes to its output folder."""

    argv: tuple[Any, ...]
    output_names: tuple[str, ...] = ()

    def values(self) -> dict[str, Any]:
        """What may hold references."""
        return {"argv": self.argv}


@dataclass(frozen=True)
class ServiceWork(CommandWork):
    """A command line that keeps running: it is ready once something answers at `ready`, a port or a URL."""

    ready: Any = None
    is_detached: bool = False
    """Whether it outlives the run."""

    def values(self) -> dict[str, Any]:
        """What may hold references."""
        return {"argv": self.argv, "ready": self.ready}


@dataclass(frozen=True)
class MapWork:
    """A function to call for each of the items that another step will give; the parts are made when those are known."""

    function: Callable[..., Any]
    items: Any
    kwargs: Mapping[str, Any]

    def values(self) -> dict[str, Any]:
        """What may hold references."""
        return {"items": self.items, "kwargs": dict(self.kwargs)}


Work = FunctionWork | CommandWork | MapWork


@dataclass(eq=False)
class Step:
    """One node: what it does, what it waits for, how it is run."""

    name: str
    work: Work
    settings: Settings
    num_outputs: int = 1
    after: tuple[Step, ...] = ()
    when: Any = None

    def __repr__(self) -> str:
        return f"Step({self.name!r})"

    def values(self) -> dict[str, Any]:
        """Everything written at the step's definition that may hold references."""
        return {**self.work.values(), "env": dict(self.settings.env), "when": self.when}

    def inputs(self) -> list[Output]:
        """The outputs of other steps it takes."""
        named = (one.output if isinstance(one, PathOf) else one for one in references(self.values()))
        return list(dict.fromkeys(one for one in named if isinstance(one, Output)))

    def upstream(self) -> list[Step]:
        """The steps it waits for, by data and by order."""
        return list(dict.fromkeys([*(output.step for output in self.inputs()), *self.after]))


@dataclass(frozen=True)
class Output:
    """What a step will return: pass it to another step, or its `path` to a command."""

    step: Step
    index: int = 0

    @property
    def path(self) -> PathOf:
        """The file or folder that holds it, once it exists."""
        return PathOf(self)

    @property
    def name(self) -> str:
        """The step's name, with a number where it has several outputs."""
        return self.step.name if self.step.num_outputs <= 1 else f"{self.step.name}.{self.index}"

    def __repr__(self) -> str:
        return f"Output({self.name!r})"

    def __iter__(self) -> Iterator[Any]:
        raise InputError(f"step {self.step.name!r} has one output. Define it with outputs=2 to take two from it.")


@dataclass(frozen=True)
class PathOf:
    """Stands for the path of an output in a command or an argument."""

    output: Output


class OutputFolder:
    """Stands for the folder to which a command must write its outputs; also in its variable TREK_OUTPUT_DIR."""

    def __repr__(self) -> str:
        return "OUTPUT_DIR"


OUTPUT_DIR = OutputFolder()


Reference = Output | PathOf | Param | OutputFolder


@dataclass(frozen=True)
class Text:
    """A text with references in it, such as `--lr=${lr}` in YAML."""

    parts: tuple[str | Reference, ...]


def references(value: Any) -> Iterator[Reference]:
    """Every reference inside `value`, through texts, lists, tuples and dicts."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Text):
        yield from references(value.parts)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references(inner)


def substitute(value: Any, replace: Callable[[Reference], Any], *, spell: Callable[[Any], str] = str) -> Any:
    """`value` with every reference replaced; `spell` makes what replaces one in a text a part of it."""
    if isinstance(value, Reference):
        return replace(value)
    if isinstance(value, Text):
        return "".join(part if isinstance(part, str) else spell(replace(part)) for part in value.parts)
    if isinstance(value, Mapping):
        return {key: substitute(inner, replace, spell=spell) for key, inner in value.items()}
    if isinstance(value, list):
        return [substitute(inner, replace, spell=spell) for inner in value]
    if isinstance(value, tuple):
        inner_values = [substitute(inner, replace, spell=spell) for inner in value]
        return type(value)(*inner_values) if hasattr(value, "_fields") else tuple(inner_values)
    return value


def graph_of(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """The graph as plain data, for the records and for drawing."""
    return [{"name": step.name, "after": [up.name for up in step.upstream()]} for step in steps]


def conditional_steps(steps: Sequence[Step]) -> set[Step]:
    """The steps that may be skipped: those with a condition, and those behind them; `steps` is in definition order."""
    found: set[Step] = set()
    for step in steps:
        if step.when is not None or not found.isdisjoint(step.upstream()):
            found.add(step)
    return found


def has_lost_branches(step: Step, *, skipped: set[Step], conditional: set[Step]) -> bool:
    """Whether all steps that `step` waits for and that may be skipped were skipped, so that it is skipped too.

    A step that joins several such branches runs if one of them was taken, with None in place of the others.
    """
    branches = [up for up in step.upstream() if up in conditional]
    return bool(branches) and all(up in skipped for up in branches)


def order(steps: Sequence[Step]) -> TopologicalSorter[Step]:
    """A prepared sorter of `steps`, and only of them."""
    chosen = set(steps)
    sorter = TopologicalSorter({step: [up for up in step.upstream() if up in chosen] for step in steps})
    try:
        sorter.prepare()
    except CycleError as error:  # only `after` lists that were changed later can do this
        raise InputError(f"the steps {error.args[1]} wait for each other. Remove one from an after= list.") from error
    return sorter


def input_ancestors(step: Step) -> set[Step]:
    """`step`, the steps whose outputs it takes, and those whose outputs these take; not what it only waits for."""
    found: set[Step] = set()
    stack = [step]
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack.extend(output.step for output in one.inputs())
    return found


def descendants(steps: Sequence[Step], *, among: Sequence[Step]) -> set[Step]:
    """Every step of `among` that depends on one of `steps`, themselves included; `among` is in definition order."""
    found = set(steps)
    for step in among:
        if not found.isdisjoint(step.upstream()):
            found.add(step)
    return found

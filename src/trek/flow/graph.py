"""The graph: steps, and the references by which one step's arguments name another's outputs. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from trek.errors import InputError

Handover = Literal["disk", "memory"]
_SCALARS: dict[type, Callable[[str], Any]] = {str: str, int: int, float: float}
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Settings:
    """How a step is run, as opposed to what it does."""

    retries: int = 0
    backoff_s: float = 1.0
    """Before the first retry; doubles with every further one, with jitter."""
    timeout_s: float | None = None
    workers: int = 1
    handover: Handover = "disk"
    """How its inputs reach it: `memory` keeps them in shared memory while the run lasts."""
    cache: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    hostfile: Path | None = None

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"retries is a number of further attempts, at least 0, got {self.retries}.")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InputError(f"timeout_s is a number of seconds above 0, got {self.timeout_s}. Leave it out for none.")
        if self.workers < 1:
            raise InputError(f"a step needs at least 1 worker, got {self.workers}.")
        if self.handover not in ("disk", "memory"):
            raise InputError(f"handover is 'disk' or 'memory', got {self.handover!r}.")


@dataclass(frozen=True)
class FunctionWork:
    """A function to call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class CommandWork:
    """A command line to run, by every worker of the step. Outputs are files that it leaves in its output folder."""

    argv: tuple[Any, ...]
    output_names: tuple[str, ...] = ()
    script: str | None = None
    """The Python file among `argv`, whose imports count as its code."""


@dataclass(eq=False)
class Step:
    """One node: what it does, what it waits for, how it is run."""

    name: str
    work: FunctionWork | CommandWork
    settings: Settings
    num_outputs: int = 1
    after: tuple[Step, ...] = ()
    when: Any = None

    def __repr__(self) -> str:
        return f"Step({self.name!r})"

    def values(self) -> tuple[Any, ...]:
        """Everything written at the step's definition that may hold references."""
        if isinstance(self.work, FunctionWork):
            return (self.work.args, dict(self.work.kwargs), self.when)
        return (self.work.argv, dict(self.settings.env), self.when)

    def inputs(self) -> list[Output]:
        """The outputs of other steps it takes."""
        named = (one.output if isinstance(one, PathOf) else one for one in references(self.values()))
        return list(dict.fromkeys(one for one in named if isinstance(one, Output)))

    def upstream(self) -> list[Step]:
        """The steps it waits for, by data and by order."""
        return list(dict.fromkeys([*(output.step for output in self.inputs()), *self.after]))


@dataclass(frozen=True)
class Output:
    """What a step will give: pass it to another step, or its `path` to a command."""

    step: Step
    index: int = 0

    @property
    def path(self) -> PathOf:
        """The file or folder that holds it, once it is there."""
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
    """Stands for the folder in which a command must leave its outputs; also in its variable TREK_OUTPUT_DIR."""

    def __repr__(self) -> str:
        return "OUTPUT_DIR"


OUTPUT_DIR = OutputFolder()


@dataclass(frozen=True)
class Param:
    """A value that is chosen when the flow is run. Its type is that of its default."""

    name: str
    default: Any
    help: str = ""

    def parse(self, text: str) -> Any:
        """`text` from a command line as a value of the parameter's type."""
        kind = type(self.default)
        if kind is bool:
            if text.lower() not in _TRUTHS:
                raise InputError(f"parameter {self.name!r} is true or false, got {text!r}.")
            return _TRUTHS[text.lower()]
        try:
            return _SCALARS[kind](text)
        except ValueError as error:
            raise InputError(f"parameter {self.name!r} is a {kind.__name__}, got {text!r}.") from error

    def check(self, value: Any) -> Any:
        """`value` from Python code, if its type fits."""
        kind = type(self.default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if type(value) is not kind:
            raise InputError(f"parameter {self.name!r} is a {kind.__name__}, got {value!r}.")
        return value


Reference = Output | PathOf | Param | OutputFolder


def references(value: Any) -> Iterator[Reference]:
    """Every reference inside `value`, through lists, tuples and dicts."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references(inner)


def substitute(value: Any, replace: Callable[[Reference], Any]) -> Any:
    """`value` with every reference replaced."""
    if isinstance(value, Reference):
        return replace(value)
    if isinstance(value, Mapping):
        return {key: substitute(inner, replace) for key, inner in value.items()}
    if isinstance(value, list):
        return [substitute(inner, replace) for inner in value]
    if isinstance(value, tuple):
        inner_values = [substitute(inner, replace) for inner in value]
        return type(value)(*inner_values) if hasattr(value, "_fields") else tuple(inner_values)
    return value


def order(steps: Sequence[Step]) -> TopologicalSorter[Step]:
    """A prepared sorter of `steps`, and only of them."""
    chosen = set(steps)
    sorter = TopologicalSorter({step: [up for up in step.upstream() if up in chosen] for step in steps})
    try:
        sorter.prepare()
    except CycleError as error:  # only `after` lists that were changed later can do this
        raise InputError(f"the steps {error.args[1]} wait for each other. Take one out of an after= list.") from error
    return sorter


def ancestors(steps: Sequence[Step]) -> set[Step]:
    """Every step that one of `steps` depends on, themselves included."""
    found: set[Step] = set()
    stack = list(steps)
    while stack:
        step = stack.pop()
        if step not in found:
            found.add(step)
            stack.extend(step.upstream())
    return found


def descendants(steps: Sequence[Step], *, among: Sequence[Step]) -> set[Step]:
    """Every step of `among` that depends on one of `steps`, themselves included; `among` is in definition order."""
    found = set(steps)
    for step in among:
        if not found.isdisjoint(step.upstream()):
            found.add(step)
    return found

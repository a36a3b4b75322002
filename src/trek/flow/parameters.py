"""Settings: how a step is run, as opposed to what it does; and parameters, which are set when a flow is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from trek.client.wire_values import find_fault
from trek.errors import InputError

Handover = Literal["disk", "memory"]
_SCALARS: dict[type, Callable[[str], Any]] = {str: str, int: int, float: float}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Param:
    """A value that is chosen when the flow is run. Its type is that of its default."""

    name: str
    default: Any
    help: str = ""

    def parse(self, text: str) -> Any:
        """`text` from a command line as a value of the parameter's type."""
        if fault := find_fault(text):
            raise InputError(f"parameter {self.name!r} {fault.reason}.")
        kind = type(self.default)
        if kind is bool:
            if text.lower() not in _BOOLEANS:
                raise InputError(f"parameter {self.name!r} must be true or false, got {text!r}.")
            return _BOOLEANS[text.lower()]
        try:
            return _SCALARS[kind](text)
        except ValueError as error:
            raise InputError(f"parameter {self.name!r} must be of type {kind.__name__}, got {text!r}.") from error

    def check(self, value: Any) -> Any:
        """`value` from Python code, if its type fits."""
        kind = type(self.default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if type(value) is not kind:
            raise InputError(f"parameter {self.name!r} must be of type {kind.__name__}, got {value!r}.")
        return value


class StepOptions(TypedDict, total=False):
    """What every kind of step may be given, besides what makes it that kind."""

    after: Iterable[Any]
    """Steps, or outputs of steps, that it waits for without using them."""
    when: Any
    """An Output, Param or value; the step is skipped if that is false."""
    retries: int
    backoff_s: float
    timeout_s: float | None
    env: Mapping[str, Any] | None
    cwd: str | Path | None
    cpus: float
    """CPUs of each of its processes, for an engine that places them."""
    gpus: float
    """GPUs of each of its processes."""


@dataclass(frozen=True)
class Settings:
    """How a step is run."""

    retries: int = 0
    backoff_s: float = 1.0
    """Before the first retry; doubles with every further one, with jitter."""
    timeout_s: float | None = None
    workers: int = 1
    launched: int = 1
    """How many processes its command starts by itself, as `mpirun -n 2` does."""
    handover: Handover | Param = "disk"
    """How its inputs reach it: `memory` keeps them in shared memory while the run lasts."""
    cache: bool = True
    is_apart: bool = False
    """A function in a separate process, which is asked to end (SIGTERM) before it is killed."""
    env: Mapping[str, Any] = field(default_factory=dict)
    cwd: Path | None = None
    hostfile: Path | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"retries must be at least 0, got {self.retries}.")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise InputError(f"timeout_s must be above 0, got {self.timeout_s}. Leave it out for no limit.")
        for name, amount in (("cpus", self.cpus), ("gpus", self.gpus)):
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                raise InputError(f"{name} must be a number of at least 0, got {amount!r}.")
        if self.num_processes < 1:
            raise InputError(f"workers must be at least 1, got {self.num_processes}.")
        if not isinstance(self.handover, Param):
            self.resolve_handover({})

    @property
    def num_processes(self) -> int:
        """How many processes compute in it: each takes a slot, and a share of the cores."""
        return self.workers * self.launched

    def resolve_handover(self, params: Mapping[str, Any]) -> Handover:
        """How inputs reach the step with these values of parameters."""
        chosen = params[self.handover.name] if isinstance(self.handover, Param) else self.handover
        if chosen not in ("disk", "memory"):
            raise InputError(f"handover must be 'disk' or 'memory', got {chosen!r}.")
        return "memory" if chosen == "memory" else "disk"


def make_settings(options: StepOptions, **own: Any) -> Settings:
    """Settings from options and from what is special to a kind of step."""
    known = StepOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise InputError(f"a step has no setting {unknown[0]!r}. It has: {', '.join(known)}.")
    given: dict[str, Any] = {name: value for name, value in options.items() if name not in ("after", "when")}
    given["env"] = dict(options.get("env") or {})
    folder = options.get("cwd")
    return Settings(**{**given, "cwd": Path(folder) if folder else None}, **own)

"""Flow: what a user writes a pipeline with. Holds the graph; `trek.flow.runner` runs it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trek.errors import InputError
from trek.flow.graph import CommandWork, FunctionWork, Handover, Output, Param, Settings, Step

if TYPE_CHECKING:
    from trek.flow.run import Run

_NAME = re.compile(r"[\w.-]+")


class FlowDefined(BaseException):
    """Raised by `Flow.run` while a file is only being read for its flow, so that reading ends there."""


class Flow:
    """A named graph of steps. Two flows share nothing, even under one name in one process."""

    is_being_read = False
    """Set by `trek.flow.loading` around the reading of a file."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(f"a flow is named with letters, digits, '.', '-' and '_', got {name!r}.")
        self.name = name
        self.steps: list[Step] = []
        self.params: dict[str, Param] = {}
        self._names: dict[str, int] = {}
        self._members: set[Step] = set()
        self.source = _calling_file()

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self.steps)} steps)"

    def param(self, name: str, default: Any, *, help: str = "") -> Param:  # noqa: A002 - the word users know
        """A value to be chosen at run time: pass what this gives to steps."""
        if name in self.params:
            raise InputError(f"parameter {name!r} is defined twice. Use the first one again.")
        if type(default) not in (str, int, float, bool):
            raise InputError(f"parameter {name!r} needs a str, int, float or bool as its default, got {default!r}.")
        self.params[name] = Param(name, default, help)
        return self.params[name]

    def step(
        self,
        function: Callable[..., Any],
        *args: Any,
        outputs: int = 1,
        name: str | None = None,
        after: Iterable[Output | Step | Sequence[Output]] = (),
        when: Any = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        workers: int = 1,
        handover: Handover = "disk",
        cache: bool = True,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call `function` with `args` and `kwargs`; gives an Output, or a tuple of them for `outputs` > 1.

        With `workers` > 1 that many processes call it, each with its World in the environment, and rank 0's result
        counts. With `when` an Output, Param or value, the step is skipped if that is false.
        """
        if not callable(function):
            raise InputError(f"a step needs a function, got {function!r}.")
        if outputs < 1:
            raise InputError(f"a step has at least 1 output, got outputs={outputs}. A function without one gives None.")
        settings = Settings(
            retries=retries, backoff_s=backoff_s, timeout_s=timeout_s, workers=workers, handover=handover,
            cache=cache, env=dict(env or {}), cwd=Path(cwd) if cwd else None,
        )  # fmt: skip
        step = Step(
            self._unique(name or _name_of(function)),
            FunctionWork(function, args, kwargs),
            settings,
            num_outputs=outputs,
            after=_steps(after),
            when=when,
        )
        return self._add(step)

    def map(self, function: Callable[..., Any], items: Iterable[Any], **settings: Any) -> list[Any]:
        """One step for each of `items`, in parallel; gives the list of their Outputs, which a step may take."""
        if isinstance(items, Output):
            raise InputError(
                f"map needs its items when the flow is defined, got the output of step {items.step.name!r}. "
                "Map over a list, and let each step pick its part of the output."
            )
        name = settings.pop("name", None) or _name_of(function)
        return [self.step(function, item, name=f"{name}[{index}]", **settings) for index, item in enumerate(items)]

    def command(
        self,
        name: str,
        argv: Sequence[Any],
        *,
        outputs: Sequence[str] = (),
        after: Iterable[Output | Step | Sequence[Output]] = (),
        when: Any = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        cache: bool | None = None,
    ) -> Any:
        """Run `argv`, without a shell. A code other than 0 is a failure.

        `outputs` name files that it must leave in the folder `$TREK_OUTPUT_DIR` (`trek.flow.OUTPUT_DIR` in
        `argv`). A command without outputs is run every time, unless `cache=True` says that its success can be kept.
        """
        settings = Settings(
            retries=retries, backoff_s=backoff_s, timeout_s=timeout_s, env=dict(env or {}),
            cwd=Path(cwd) if cwd else None, cache=bool(outputs) if cache is None else cache,
        )  # fmt: skip
        return self._add_command(name, argv, settings, outputs=outputs, after=after, when=when)

    def script(
        self,
        script: str | Path,
        *args: Any,
        name: str | None = None,
        workers: int = 1,
        launcher: str = "trek",
        hostfile: str | Path | None = None,
        outputs: Sequence[str] = (),
        after: Iterable[Output | Step | Sequence[Output]] = (),
        when: Any = None,
        retries: int = 0,
        backoff_s: float = 1.0,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        cache: bool | None = None,
    ) -> Any:
        """Run a Python script as `workers` processes, as `trek launch` does; with launcher="mpirun" under MPI."""
        if launcher not in ("trek", "mpirun"):
            raise InputError(f"launcher is 'trek' or 'mpirun', got {launcher!r}.")
        program: list[Any] = [sys.executable, str(script), *args]
        hosts = Path(hostfile) if hostfile else None
        if launcher == "mpirun":
            program = ["mpirun", "-n", str(workers), *(["--hostfile", str(hosts)] if hosts else []), *program]
        settings = Settings(
            retries=retries, backoff_s=backoff_s, timeout_s=timeout_s, env=dict(env or {}),
            cwd=Path(cwd) if cwd else None, cache=bool(outputs) if cache is None else cache,
            workers=workers if launcher == "trek" else 1, hostfile=hosts if launcher == "trek" else None,
        )  # fmt: skip
        chosen = name or Path(script).stem
        return self._add_command(chosen, program, settings, outputs=outputs, after=after, when=when, script=str(script))

    def run(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        parallel: int | None = None,
        force: bool = False,
        from_step: str | None = None,
        only: str | None = None,
        resume: str | None = None,
        show: bool = True,
    ) -> Run:
        """Run what needs to be run, and wait. Raises `TrainingError` when a step failed; `resume` names a run."""
        if Flow.is_being_read:
            raise FlowDefined
        from trek.flow.run import run_flow

        return run_flow(
            self,
            params=params or {},
            parallel=parallel,
            force=force,
            from_step=from_step,
            only=only,
            resume=resume,
            show=show,
        )

    def find(self, name: str) -> Step:
        """The step called `name`."""
        for step in self.steps:
            if step.name == name:
                return step
        known = ", ".join(step.name for step in self.steps[:20])
        raise InputError(f"flow {self.name!r} has no step {name!r}. It has: {known}.")

    def _add_command(
        self,
        name: str,
        argv: Sequence[Any],
        settings: Settings,
        *,
        outputs: Sequence[str],
        after: Iterable[Output | Step | Sequence[Output]],
        when: Any,
        script: str | None = None,
    ) -> Any:
        if isinstance(argv, str) or not argv:
            raise InputError(f"a command is a list of its words, such as ['python', 'evaluate.py'], got {argv!r}.")
        if isinstance(outputs, str):
            raise InputError(f"outputs is a list of file names, got {outputs!r}. Write [{outputs!r}].")
        work = CommandWork(tuple(argv), tuple(outputs), script)
        return self._add(
            Step(self._unique(name), work, settings, num_outputs=max(len(outputs), 1), after=_steps(after), when=when)
        )

    def _add(self, step: Step) -> Any:
        for other in step.upstream():
            if other not in self._members:
                raise InputError(f"step {step.name!r} takes from {other.name!r}, which belongs to another flow.")
        self.steps.append(step)
        self._members.add(step)
        outputs = tuple(Output(step, index) for index in range(step.num_outputs))
        return outputs if step.num_outputs > 1 else outputs[0]

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"


def _steps(after: Iterable[Output | Step | Sequence[Output]]) -> tuple[Step, ...]:
    if isinstance(after, Output | Step):
        after = [after]
    found: list[Step] = []
    for one in after:
        if isinstance(one, list | tuple):
            found.extend(_steps(one))
        elif isinstance(one, Output | Step):
            found.append(one.step if isinstance(one, Output) else one)
        else:
            raise InputError(f"after= takes steps or their outputs, got {one!r}.")
    return tuple(dict.fromkeys(found))


def _name_of(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    name = getattr(inner, "__name__", type(inner).__name__)
    return "step" if name == "<lambda>" else name


def _calling_file() -> str | None:
    """The file that defines the flow, for `trek flow resume` to read it again; None in a notebook."""
    frame = sys._getframe(2)
    path = frame.f_globals.get("__file__")
    return os.path.abspath(path) if path else None  # noqa: PTH100 - links are kept as the user wrote them

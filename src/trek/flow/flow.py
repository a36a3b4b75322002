"""Flow: what a user writes a pipeline with. Holds the graph; `trek.flow.runner` runs it."""

from __future__ import annotations

import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from trek.errors import InputError
from trek.flow.artefacts.base import is_subclass
from trek.flow.graph import CommandWork, FunctionWork, MapWork, Output, ServiceWork, Step, Text, Work
from trek.flow.parameters import Handover, Param, StepOptions, make_settings

if TYPE_CHECKING:
    from trek.flow.dry_run import Foreseen
    from trek.flow.run import Run

_NAME = re.compile(r"(?!\.+$)[\w.-]+")
_MAP_SETTINGS = {*StepOptions.__annotations__, "workers", "handover", "cache"}
_START_TIMEOUT_S = 60.0
_NEVER_STORED = {"torch": ("Module", "Optimizer", "DataLoader"), "builtins": ("set", "frozenset")}
"""Classes that people return from steps, and that cannot be stored."""


class FlowDefined(BaseException):
    """Raised by `Flow.run` while a file is only being read for its flow, so that reading ends there."""


class Flow:
    """A named graph of steps. Two flows share nothing, even under one name in one process."""

    is_being_read = False
    """Set by `trek.flow.loading` while it reads a file."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"a flow's name must consist of letters, digits, '.', '-' and '_', and not of dots alone, got {name!r}."
            )
        self.name = name
        self.steps: list[Step] = []
        self.params: dict[str, Param] = {}
        self._names: dict[str, int] = {}
        self._members: set[Step] = set()
        self.source = _calling_file()

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self.steps)} steps)"

    def param(self, name: str, default: Any, *, help: str = "") -> Param:  # noqa: A002 - the word users know
        """A value that is chosen when the flow is run: pass the returned Param to steps."""
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
        handover: Handover | Param = "disk",
        cache: bool = True,
        env: Mapping[str, Any] | None = None,
        cwd: str | Path | None = None,
        cpus: float = 1.0,
        gpus: float = 0.0,
        **kwargs: Any,
    ) -> Any:
        """Call `function` with `args` and `kwargs`; returns an Output, or a tuple of them for `outputs` > 1.

        With `workers` > 1 that many processes call it, each with its World in the environment; rank 0's result is
        used. If `when`, an Output, Param or value, is false, the step is skipped. Each process takes `cpus` and `gpus`
        of the engine.
        """
        if outputs < 1:
            raise InputError(f"outputs must be at least 1, got {outputs}. A function without a result returns None.")
        options: StepOptions = {
            "after": after, "when": when, "retries": retries, "backoff_s": backoff_s, "timeout_s": timeout_s,
            "env": env, "cwd": cwd, "cpus": cpus, "gpus": gpus,
        }  # fmt: skip
        work = FunctionWork(_checked(function), args, kwargs)
        own = {"workers": workers, "handover": handover, "cache": cache}
        return self._add(name or _name_of(function), work, options, num_outputs=outputs, **own)

    def map(
        self, function: Callable[..., Any], items: Iterable[Any] | Output, *, name: str | None = None, **settings: Any
    ) -> Any:
        """One step for each of `items`, in parallel; returns what gives another step the list of their results.

        For a list, that is the list of their Outputs. For an Output, whose list is known once its step is done, it is
        one Output.
        """
        chosen = name or _name_of(function)
        if not isinstance(items, Output):
            return [
                self.step(function, item, name=f"{chosen}[{index}]", **settings) for index, item in enumerate(items)
            ]
        own = {key: settings.pop(key) for key in _MAP_SETTINGS & settings.keys()}
        options: StepOptions = {key: own.pop(key) for key in StepOptions.__annotations__ if key in own}  # type: ignore[assignment]
        return self._add(chosen, MapWork(_checked(function), items, settings), options, **own)

    def command(
        self,
        name: str,
        argv: Sequence[Any],
        *,
        outputs: Sequence[str] = (),
        cache: bool | None = None,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Run `argv`, without a shell. An exit code other than 0 is a failure.

        `outputs` name files that it must write to the folder `$TREK_OUTPUT_DIR` (`trek.flow.OUTPUT_DIR` in
        `argv`). A command without outputs is run every time, unless `cache=True` says that its success can be kept.
        """
        return self._add_command(name, argv, options, outputs=outputs, cache=cache)

    def script(
        self,
        script: str | Path,
        *args: Any,
        name: str | None = None,
        workers: int = 1,
        launcher: str = "trek",
        hostfile: str | Path | None = None,
        outputs: Sequence[str] = (),
        cache: bool | None = None,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Run a Python script as `workers` processes, as `trek launch` does.

        With launcher="mpirun" MPI starts the processes, with launcher="srun" Slurm does.
        """
        hosts = Path(hostfile) if hostfile else None
        own: dict[str, Any] = {"workers": workers, "hostfile": hosts} if launcher == "trek" else {"launched": workers}
        program = [*launcher_words(launcher, workers, hosts), sys.executable, str(script), *args]
        return self._add_command(name or Path(script).stem, program, options, outputs=outputs, cache=cache, **own)

    def service(
        self,
        name: str,
        argv: Sequence[Any],
        *,
        ready: int | str | Param | Text,
        detach: bool = False,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Start `argv`, wait until `ready`, a port of this machine or a URL, answers, and keep it for later steps.

        Returns the service's address, such as "http://127.0.0.1:8080". The service is started in every run and ends
        with it. With `detach` it outlives the run: a later run keeps it if nothing about it changed and replaces it
        otherwise; `trek flow stop` ends it. It has `timeout_s` (60) to answer.
        """
        if not isinstance(ready, int | str | Param | Text) or isinstance(ready, bool):
            raise InputError(f"ready must be a port or a URL, got {ready!r}.")
        options.setdefault("timeout_s", _START_TIMEOUT_S)
        work = ServiceWork(_words(argv), ready=ready, is_detached=detach)
        return self._add(name, work, options, cache=False)

    def experiment(
        self,
        config: str | Path,
        folder: str | Path,
        *,
        overrides: Mapping[str, Any] | None = None,
        template: str | None = None,
        name: str | None = None,
        cache: bool = True,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Run a whole experiment, as `trek experiment create CONFIG FOLDER` does; returns its best `Checkpoint`.

        `overrides` set parts of the config by dotted names, and may hold outputs and parameters. `template` names a
        template of the control plane that the config is laid over.
        """
        from trek.flow.experiments import run_experiment

        base = Path(options.get("cwd") or "")
        settings = {"overrides": dict(overrides or {}), "template": template}
        work = FunctionWork(run_experiment, (base / config, base / folder), settings)
        return self._add(name or Path(config).stem, work, options, cache=cache, is_apart=True)

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
        engine: str = "local",
    ) -> Run:
        """Run what needs to be run on `engine`, and wait. Raises `TrainingError` when a step failed.

        `resume` names a run to go on with.
        """
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
            engine=engine,
        )

    def dry_run(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        force: bool = False,
        from_step: str | None = None,
        only: str | None = None,
    ) -> list[Foreseen]:
        """What `run` would do with each step, and why. Runs and records nothing."""
        if Flow.is_being_read:
            raise FlowDefined
        from trek.flow.run import foresee_run

        return foresee_run(self, params=params or {}, force=force, from_step=from_step, only=only)

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
        options: StepOptions,
        *,
        outputs: Sequence[str],
        cache: bool | None,
        **own: Any,
    ) -> Any:
        if isinstance(outputs, str):
            raise InputError(f"outputs must be a list of file names, got {outputs!r}. Write [{outputs!r}].")
        work = CommandWork(_words(argv), tuple(outputs))
        is_kept = bool(outputs) if cache is None else cache
        return self._add(name, work, options, num_outputs=max(len(outputs), 1), cache=is_kept, **own)

    def _add(self, name: str, work: Work, options: StepOptions, *, num_outputs: int = 1, **own: Any) -> Any:
        settings = make_settings(options, **own)
        after = _steps(options.get("after", ()))
        step = Step(name, work, settings, num_outputs=num_outputs, after=after, when=options.get("when"))
        for other in step.upstream():
            if other not in self._members:
                raise InputError(f"step {step.name!r} uses {other.name!r}, which belongs to another flow.")
        step.name = self._unique(name)
        self.steps.append(step)
        self._members.add(step)
        outputs = tuple(Output(step, index) for index in range(num_outputs))
        return outputs if num_outputs > 1 else outputs[0]

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"


def launcher_words(launcher: str, workers: int, hosts: Path | None) -> list[str]:
    """What comes before a program that another launcher starts."""
    if launcher == "trek":
        return []
    if launcher == "mpirun":
        return ["mpirun", "-n", str(workers), *(["--hostfile", str(hosts)] if hosts else [])]
    if launcher != "srun":
        raise InputError(f"launcher must be 'trek', 'mpirun' or 'srun', got {launcher!r}.")
    if hosts is not None:
        raise InputError("launcher 'srun' takes no hostfile, got one: Slurm chooses the hosts. Leave it out.")
    return ["srun", "-n", str(workers)]


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


def _words(argv: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(argv, str) or not argv:
        raise InputError(f"a command must be a list of words, such as ['python', 'evaluate.py'], got {argv!r}.")
    return tuple(argv)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a step, if what it returns can be a result as far as that is known before it runs."""
    if not callable(function):
        raise InputError(f"a step needs a function, got {function!r}.")
    inner = inspect.unwrap(getattr(function, "func", function))
    name = _name_of(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InputError(f"the function of step {name!r} is a generator, which cannot be stored. Return a list.")
    if inspect.iscoroutinefunction(inner):
        raise InputError(f"the function of step {name!r} is a coroutine. Call it with asyncio.run in a plain function.")
    returned = _returned_class(inner)
    if returned is not None and any(is_subclass(returned, module, *names) for module, names in _NEVER_STORED.items()):
        raise InputError(
            f"the function of step {name!r} is declared to return a {returned.__qualname__}, which cannot be stored. "
            "Return plain data, an array, a table or a file; of a model, its state_dict()."
        )
    return function


def _returned_class(function: Callable[..., Any]) -> type | None:
    """The class that the function's annotation says it returns, if it says so."""
    if not getattr(function, "__annotations__", None):
        return None
    try:
        found = typing.get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001 - annotations may name anything, also what is not there
        return None
    return found if isinstance(found, type) else None


def _name_of(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)
    name = getattr(inner, "__name__", type(inner).__name__)
    return "step" if name == "<lambda>" else name


def _calling_file() -> str | None:
    """The file that defines the flow, for `trek flow resume` to read it again; None in a notebook."""
    frame = sys._getframe(2)
    path = frame.f_globals.get("__file__")
    return os.path.abspath(path) if path else None  # noqa: PTH100 - links are kept as the user wrote them

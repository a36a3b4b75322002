"""Keys: what decides whether a step must run, part by part, and what changed when it must. Writes nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.flow.artefacts import Stored
from trek.flow.code import code_parts, script_parts, value_digest
from trek.flow.contents import digest_path, digest_text
from trek.flow.graph import (
    CommandWork,
    FunctionWork,
    MapWork,
    Output,
    OutputFolder,
    PathOf,
    Reference,
    ServiceWork,
    Step,
    substitute,
)
from trek.flow.parameters import Param

Components = dict[str, str]


class Keymaker:
    """Makes the keys of one run: knows the parameters' values and, as the run continues, the outputs so far."""

    def __init__(self, params: Mapping[str, Any], stored: Mapping[Output, Stored]) -> None:
        self._params = params
        self._stored = stored
        self._parts = functools.cache(code_parts)

    def components(self, step: Step) -> Components:
        """Every part that the step's result depends on, by a name that a person understands."""
        parts = self._work_parts(step)
        settings = step.settings
        if settings.workers > 1:
            parts["number of workers"] = str(settings.workers)
        for name, value in settings.env.items():
            parts[f"variable {name}"] = self._digest(value)
        if settings.cwd is not None:
            parts["working directory"] = str(settings.cwd)
        parts["number of outputs"] = str(step.num_outputs)
        return parts

    def _work_parts(self, step: Step) -> Components:
        work = step.work
        if isinstance(work, FunctionWork):
            parts = {f"code of {name}": digest for name, digest in self._function_parts(work.function).items()}
            named = [*enumerate(work.args), *work.kwargs.items()]
            return parts | {f"argument {name}": self._digest(value) for name, value in named}
        assert not isinstance(work, MapWork), "the parts of a map have keys, not the map"
        return self._command_parts(work, folder=step.settings.cwd or Path())

    def _function_parts(self, function: Any) -> dict[str, str]:
        try:
            return self._parts(function)
        except TypeError:  # an unhashable callable
            return code_parts(function)

    def _command_parts(self, work: CommandWork, *, folder: Path) -> Components:
        parts = {f"word {index}": self._digest(word) for index, word in enumerate(work.argv)}
        for word in work.argv[1:]:
            path = folder / word if isinstance(word, str) else None
            if path is None or not path.is_file():
                continue
            if path.suffix == ".py":
                parts |= {f"code of {name}": digest for name, digest in script_parts(path).items()}
            else:
                parts[f"file {word}"] = digest_path(path)
        if isinstance(work, ServiceWork):
            parts["address"] = self._digest(work.ready)
        return parts | {f"output {name}": "" for name in work.output_names}

    def _digest(self, value: Any) -> str:
        return value_digest(substitute(value, self._spell_reference))

    def _spell_reference(self, reference: Reference) -> Any:
        if isinstance(reference, Param):
            return self._params[reference.name]
        if isinstance(reference, OutputFolder):
            return ("output folder",)
        if isinstance(reference, PathOf):
            return ("path of", self._stored[reference.output].digest)
        return ("output", self._stored[reference].digest)


def make_key(components: Components) -> str:
    """One digest of all components. The step's name is not one: renaming a step recomputes nothing."""
    return digest_text(repr(sorted(components.items())))


def explain_change(now: Components, before: Components | None) -> str:
    """Why a step with these components must run, given those of its last success."""
    if before is None:
        return "it has not succeeded before"
    changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    if not changed:
        return "nothing changed"
    return _list_names([_describe(name, now, before) for name in changed])


def _describe(name: str, now: Components, before: Components) -> str:
    if name not in before:
        return f"{name} is new"
    return f"{name} was removed" if name not in now else f"{name} changed"


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

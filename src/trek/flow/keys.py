"""Keys: what decides whether a step must run, part by part, and what changed when it must. Writes nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.fingerprints import Fingerprint, digest_text, fingerprint_code, fingerprint_command, fingerprint_value
from trek.flow.artefacts import Stored
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
_UNKNOWN = "unknown "
"""What the digest of a part begins with that cannot be fingerprinted; the rest comes only once."""


class Keymaker:
    """Makes the keys of one run: knows the parameters' values and, as the run continues, the outputs so far."""

    def __init__(self, params: Mapping[str, Any], stored: Mapping[Output, Stored], *, home: Path) -> None:
        self._home = home
        self._params = params
        self._stored = stored
        self._services: dict[Step, str] = {}
        self._code: dict[int, Fingerprint] = {}

    def components(self, step: Step) -> Components:
        """Every part that the step's result depends on, by a name that a person understands."""
        parts = self._work_parts(step)
        settings = step.settings
        if settings.workers > 1:
            parts["number of workers"] = str(settings.workers)
        for name, value in settings.env.items():
            parts |= self._value_parts(f"variable {name}", value)
        if settings.cwd is not None:
            parts["working directory"] = str(settings.cwd)
        parts["number of outputs"] = str(step.num_outputs)
        if isinstance(step.work, ServiceWork):
            self._services[step] = make_key(parts)
        return parts

    def _work_parts(self, step: Step) -> Components:
        work = step.work
        if isinstance(work, FunctionWork):
            parts = _to_components(self._code_of(work.function), prefix="code of ")
            for name, value in [*enumerate(work.args), *work.kwargs.items()]:
                parts |= self._value_parts(f"argument {name}", value)
            return parts
        assert not isinstance(work, MapWork), "the parts of a map have keys, not the map"
        return self._command_parts(work, step)

    def _code_of(self, function: Any) -> Fingerprint:
        """By identity: objects that are equal to each other may do different things."""
        if id(function) not in self._code:
            self._code[id(function)] = fingerprint_code(function)
        return self._code[id(function)]

    def _command_parts(self, work: CommandWork, step: Step) -> Components:
        argv = [substitute(word, self._spell_reference) for word in work.argv]
        search_path = str(step.settings.env.get("PYTHONPATH") or "").split(os.pathsep)
        folder = step.settings.cwd or Path()
        folders = [folder / one for one in search_path if one]
        variables = [value for value in step.settings.env.values() if isinstance(value, str)]
        found = fingerprint_command(
            argv, folder=folder, variables=variables, search_path=folders, left_out=[self._home]
        )
        parts = _to_components(found)
        if isinstance(work, ServiceWork):
            parts |= self._value_parts("address", work.ready)
        return parts | {f"output {name}": "" for name in work.output_names}

    def _value_parts(self, name: str, value: Any) -> Components:
        """One part for a value, with the code that it reaches; and each thing of it that cannot be fingerprinted."""
        found = fingerprint_value(substitute(value, self._spell_reference), name=name)
        return {name: found.digest} | _to_components(Fingerprint({}, found.unknown))

    def _spell_reference(self, reference: Reference) -> Any:
        if isinstance(reference, Param):
            return self._params[reference.name]
        if isinstance(reference, OutputFolder):
            return ("output folder",)
        if isinstance(reference, PathOf):
            return ("path of", self._digest_of(reference.output))
        return ("output", self._digest_of(reference))

    def _digest_of(self, output: Output) -> str:
        """A service counts by what it serves: its address stays the same."""
        return self._services.get(output.step) or self._stored[output].digest


def _to_components(found: Fingerprint, *, prefix: str = "") -> Components:
    parts = {f"{prefix}{name}": digest for name, digest in found.parts.items()}
    parts |= {f"contents of {file.name}": file.digest for file in found.files}
    return parts | {name: f"{_UNKNOWN}{uuid.uuid4().hex}" for name in found.unknown}


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
    changed.sort(key=lambda name: not _is_unknown(name, now))
    told = [name for name in changed if name in now or not _is_unknown(name, before)]
    return _list_names([_describe(name, now, before) for name in told])


def _is_unknown(name: str, components: Components) -> bool:
    return components.get(name, "").startswith(_UNKNOWN)


def _describe(name: str, now: Components, before: Components) -> str:
    if _is_unknown(name, now):
        return f"{name} cannot be fingerprinted"
    if name not in before:
        return f"{name} is new"
    return f"{name} was removed" if name not in now else f"{name} changed"


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

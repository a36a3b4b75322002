"""Flows from YAML: the same graph, spelled without Python.

    name: mnist
    params: {lr: 0.1}
    steps:
      download: {python: "steps:download", retries: 3}
      prepare: {python: "steps:prepare", args: ["${download}"], outputs: 2}
      train: {script: train.py, args: ["--data", "${prepare.0.path}", "--lr", "${lr}"], workers: 2, outputs: [model.pt]}
      evaluate: {command: [python, evaluate.py, "${train.path}"]}
      search: {experiment: adaptive.yaml, folder: ., overrides: {data.folder: "${prepare.0.path}"}}
      serve: {service: [python, serve.py, "${search.path}"], ready: 8080, detach: true}
      shards: {python: "steps:convert", map: "${download}"}

A text that is one `${…}` is a reference to an earlier step's output or to a parameter. Within a longer text, as in
`--lr=${lr}`, it is replaced by the parameter, the number or text that the step returned, or the path; `$${…}` stays
as `${…}`. `map` calls the function for every item of a list, or of the list that an earlier step returned.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trek.errors import ConfigError
from trek.flow.flow import Flow
from trek.flow.graph import Output, Text
from trek.flow.parameters import StepOptions

_REFERENCE = re.compile(r"([\w-]+)(?:\.(\d+))?(\.path)?")
_IN_TEXT = re.compile(r"(\$\$\{)|\$\{([^{}]*)\}")
_SETTINGS = set(StepOptions.__annotations__)
_KINDS: dict[str, set[str]] = {
    "python": _SETTINGS | {"args", "kwargs", "map", "outputs", "workers", "handover", "cache"},
    "script": _SETTINGS | {"args", "outputs", "workers", "hostfile", "launcher", "cache"},
    "command": _SETTINGS | {"outputs", "cache"},
    "service": _SETTINGS | {"ready", "detach"},
    "experiment": _SETTINGS | {"folder", "overrides", "template", "cache"},
}


def read_yaml_flow(path: Path) -> Flow:
    """The flow that `path` describes."""
    from trek.client.safe_yaml import load_yaml

    try:
        content = load_yaml(path.read_text(encoding="utf-8"), name=str(path)).value
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None
    if not isinstance(content, dict) or not isinstance(content.get("steps"), dict):
        raise ConfigError(f"{path} needs a mapping called 'steps'. See the documentation of flows.")
    if unknown := sorted(content.keys() - {"name", "params", "steps"}):
        raise ConfigError(f"{path}: {unknown[0]!r} is not a known key. A flow has name, params and steps.")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return _Reader(path, content).read()


class _Reader:
    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self._path = path
        self._content = content
        self._flow = Flow(content.get("name") or path.stem)
        self._flow.source = str(path.resolve())
        self._made: dict[str, Any] = {}

    def read(self) -> Flow:
        for name, default in (self._content.get("params") or {}).items():
            self._made[name] = self._flow.param(name, default)
        for name, step in self._content["steps"].items():
            self._made[name] = self._read_step(name, step)
        return self._flow

    def _read_step(self, name: str, step: Any) -> Any:
        kinds = [kind for kind in _KINDS if isinstance(step, dict) and kind in step]
        if len(kinds) != 1:
            raise ConfigError(f"{self._path}: step {name!r} needs one of {', '.join(_KINDS)}.")
        kind = kinds[0]
        settings = {key: self._resolve(value, name) for key, value in step.items() if key != kind}
        if unknown := sorted(settings.keys() - _KINDS[kind]):
            raise ConfigError(
                f"{self._path}: step {name!r} has the unknown key {unknown[0]!r}. "
                f"A {kind} step has: {', '.join(sorted(_KINDS[kind]))}."
            )
        settings["after"] = [self._named(one, name) for one in settings.get("after", ())]
        try:
            return self._add(kind, name, self._resolve(step[kind], name), settings)
        except TypeError as error:  # what is missing, or given twice
            raise ConfigError(f"{self._path}: step {name!r}: {error}.") from error

    def _add(self, kind: str, name: str, what: Any, settings: dict[str, Any]) -> Any:
        args = settings.pop("args", [])
        if kind == "command":
            return self._flow.command(name, what, **settings)
        if kind == "service":
            return self._flow.service(name, what, **settings)
        if kind == "experiment":
            return self._flow.experiment(what, settings.pop("folder", "."), name=name, **settings)
        if kind == "script":
            return self._flow.script(what, *args, name=name, **settings)
        function, kwargs = self._function(what, name), settings.pop("kwargs", {})
        if "map" in settings:
            return self._flow.map(function, settings.pop("map"), name=name, **kwargs, **settings)
        return self._flow.step(function, *args, name=name, **kwargs, **settings)

    def _function(self, spelling: str, name: str) -> Callable[..., Any]:
        module, _, attribute = str(spelling).partition(":")
        try:
            function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"{self._path}: step {name!r}: {spelling!r} cannot be loaded: {error}.") from error
        return function

    def _resolve(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: self._resolve(inner, name) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner, name) for inner in value]
        return self._resolve_text(value, name) if isinstance(value, str) else value

    def _resolve_text(self, text: str, name: str) -> Any:
        """A reference if the text is one, a `Text` if it has some inside, else the text itself."""
        parts: list[Any] = []
        end = 0
        for match in _IN_TEXT.finditer(text):
            parts += [text[end : match.start()], "${" if match[1] else self._refer(match[2], name)]
            end = match.end()
        parts = [part for part in (*parts, text[end:]) if part != ""]
        if all(isinstance(part, str) for part in parts):
            return "".join(parts)
        if len(parts) > 1 and (several := [part for part in parts if isinstance(part, tuple | list)]):
            raise ConfigError(
                f"{self._path}: step {name!r}: {text!r} refers to a step with {len(several[0])} outputs. "
                "Name one of them, as in ${step.0}."
            )
        return parts[0] if len(parts) == 1 else Text(tuple(parts))

    def _refer(self, spelling: str, name: str) -> Any:
        match = _REFERENCE.fullmatch(spelling)
        if match is None:
            raise ConfigError(
                f"{self._path}: step {name!r}: '${{{spelling}}}' is not a reference. "
                "Write ${name}, ${step.path}, ${step.0} or ${step.0.path}; for the text itself, $${…}."
            )
        made = self._named(match[1], name)
        if match[2] and (not isinstance(made, tuple | list) or int(match[2]) >= len(made)):
            count = len(made) if isinstance(made, tuple | list) else 1
            raise ConfigError(
                f"{self._path}: step {name!r}: {match[1]!r} has {count} output(s), got '${{{spelling}}}'."
            )
        output = made[int(match[2])] if match[2] else made
        if match[3] and not isinstance(output, Output):
            raise ConfigError(f"{self._path}: step {name!r}: {match[1]!r} has no path, got '${{{spelling}}}'.")
        return output.path if match[3] else output

    def _named(self, reference: Any, name: str) -> Any:
        if not isinstance(reference, str):
            return reference
        if reference not in self._made:
            raise ConfigError(
                f"{self._path}: step {name!r} refers to {reference!r}, which is not an earlier step or a parameter. "
                f"There are: {', '.join(self._made) or 'none'}. For the text itself, write $${{…}}."
            )
        return self._made[reference]

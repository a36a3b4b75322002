"""A YAML file with the line number of every key, for error messages. Knows no schema."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trek.client.safe_yaml import load_yaml
from trek.errors import ConfigError, InputError
from trek.experiments.config_merging import with_changes

Keys = tuple[str | int, ...]
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class _Loader(yaml.SafeLoader):
    """Reads `1e-3` as a number; in YAML 1.1 it is text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


@dataclass
class YamlSource:
    """The content of the file, and the line of each key."""

    name: str
    data: dict[str, Any]
    lines: dict[Keys, int] = field(default_factory=dict)

    def at(self, path: Sequence[str | int]) -> str:
        """`file:line` of the key at `path`, or of the nearest enclosing key that the file has."""
        line = self.line(path)
        return f"{self.name}:{line}" if line is not None else self.name

    def line(self, path: Sequence[str | int]) -> int | None:
        """The line of the key at `path`, or of the nearest enclosing one; None if the file has none of them."""
        keys = tuple(path)
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys)

    def override(self, settings: Sequence[str]) -> None:
        """Apply settings such as `a.b.c=value`; values are read as YAML."""
        self.data = with_changes(self.data, dict(map(parse_override, settings)))


def parse_override(setting: str) -> tuple[str, Any]:
    """Parse `a.b.c=value` into the dotted key and the value, which is read as YAML."""
    dotted, equals, text = setting.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not equals or not all(keys):
        raise InputError(f"invalid override {setting!r}: expected key=value, such as searcher.max_trials=16.")
    return ".".join(keys), load_yaml(text, name=f"--config {dotted[:100]}", loader=_Loader).value


def read_yaml(path: Path, *, environ: Mapping[str, str] = os.environ) -> YamlSource:
    """Read the file at `path`; `${NAME}` and `${NAME:-default}` in values are replaced from the environment."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"the config file {str(path)!r} does not exist.") from None
    except IsADirectoryError:
        raise InputError(f"the config file {str(path)!r} is a folder. Give the path of a YAML file.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the config file {str(path)!r} is not UTF-8 text.") from None
    return parse_yaml(text, name=path.name, environ=environ)


def parse_yaml(text: str, *, name: str = "config", environ: Mapping[str, str] = os.environ) -> YamlSource:
    """Like `read_yaml`, for text."""
    lines: dict[Keys, int] = {}
    document = load_yaml(text, name=name, loader=_Loader)
    _note_lines(document.node, (), lines, name=name, seen=set())
    if not isinstance(document.value, dict):
        raise ConfigError(f"{name} is not a mapping of keys to values. Write lines such as 'entrypoint: module:Class'.")
    source = YamlSource(name, document.value, lines)
    source.data = _substitute(source.data, (), source=source, environ=environ)
    return source


def _note_lines(node: yaml.Node | None, at: Keys, lines: dict[Keys, int], *, name: str, seen: set[int]) -> None:
    if node is not None and not isinstance(node, yaml.ScalarNode):
        if id(node) in seen:
            return  # an alias: its lines are those of the anchor
        seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            keys = (*at, str(key_node.value))
            if keys in lines and key_node.value != "<<":
                raise ConfigError(f"{name}:{key_node.start_mark.line + 1}: the key {key_node.value!r} is given twice.")
            lines[keys] = key_node.start_mark.line + 1
            _note_lines(value_node, keys, lines, name=name, seen=seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*at, index)] = item.start_mark.line + 1
            _note_lines(item, (*at, index), lines, name=name, seen=seen)


def _substitute(value: Any, at: Keys, *, source: YamlSource, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            str(key): _substitute(item, (*at, str(key)), source=source, environ=environ) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_substitute(item, (*at, i), source=source, environ=environ) for i, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    text = _VARIABLE.sub(lambda match: _variable(match, at, source=source, environ=environ), value)
    # A value that consists of one variable takes the type that the variable's text has in YAML.
    if not _VARIABLE.fullmatch(value):
        return text
    return load_yaml(text, name=source.at(at), loader=_Loader).value


def _variable(match: re.Match[str], at: Keys, *, source: YamlSource, environ: Mapping[str, str]) -> str:
    name, default = match.group(1), match.group(2)
    if name in environ:
        return environ[name]
    if default is None:
        raise ConfigError(
            f"{source.at(at)}: the environment variable {name} is not set. Set it, or write ${{{name}:-default}}."
        )
    return default

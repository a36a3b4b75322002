"""YAML from outside, read within the limits of `wire_values`: bounded in time whatever its aliases and its nesting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from trek.client.wire_values import MAX_DEPTH, MAX_ITEMS
from trek.errors import ConfigError


@dataclass(frozen=True)
class YamlDocument:
    """A document as nodes, which know their lines, and as plain values."""

    node: yaml.Node | None
    value: Any


def load_yaml(text: str, *, name: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> YamlDocument:
    """The only document in `text`; ConfigError, which begins with `name` and the line, where it cannot be read."""
    try:
        reader = loader(text)
        try:
            node = reader.get_single_node()
            if node is None:
                return YamlDocument(None, None)
            _Sizes(name).check(node)
            return YamlDocument(node, reader.construct_document(node))
        finally:
            reader.dispose()
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        raise _syntax_error(error, name=name) from None
    except RecursionError:
        raise _too_deep(name) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{name} cannot be read as YAML: {error}.") from None


class _Sizes:
    """How large and how deep nodes are with every alias written out, worked out without writing them out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: dict[int, tuple[int, int]] = {}
        """Entries and depth of each node that is done."""
        self._open: set[int] = set()

    def check(self, root: yaml.Node) -> None:
        """Raise ConfigError for a document that is too large or too deep, or that contains itself."""
        waiting = [(root, False)]
        while waiting:
            node, is_done = waiting.pop()
            if is_done:
                self._open.remove(id(node))
                self._measure(node)
            elif id(node) in self._open:
                raise ConfigError(f"{self._name}:{node.start_mark.line + 1}: an alias refers to what contains it.")
            elif id(node) not in self._sizes:
                self._open.add(id(node))
                waiting.append((node, True))
                waiting += [(child, False) for child in _children(node)]

    def _measure(self, node: yaml.Node) -> None:
        inner = [self._sizes[id(child)] for child in _children(node)]
        size, depth = 1 + sum(one for one, _ in inner), 1 + max((one for _, one in inner), default=-1)
        if size > MAX_ITEMS:
            raise ConfigError(f"{self._name} has more than {MAX_ITEMS} entries, with every alias written out.")
        if depth > MAX_DEPTH:
            raise _too_deep(self._name)
        self._sizes[id(node)] = size, depth


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _too_deep(name: str) -> ConfigError:
    return ConfigError(f"{name} must be nested at most {MAX_DEPTH} levels deep.")


def _syntax_error(error: yaml.YAMLError, *, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f"{name}:{mark.line + 1}" if mark is not None else name
    return ConfigError(f"{where}: invalid YAML: {problem}.")

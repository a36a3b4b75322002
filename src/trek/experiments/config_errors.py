"""Turns errors in a config into one message: the line, the key, the value, the remedy."""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from trek.errors import ConfigError
from trek.experiments.config_spelling import OLD_KEYS, written_path
from trek.experiments.masking import masked_at, redacted, secret_values
from trek.experiments.yaml_source import YamlSource
from trek.search.searcher_registry import SEARCHERS, settings_types
from trek.search.searcher_settings import OLD_KEYS as OLD_SEARCHER_KEYS
from trek.search.searcher_settings import OLD_NAMES, SearcherSettings
from trek.search.space import TYPES

Loc = tuple[str | int, ...]

_REMEDIES: dict[str, str] = {
    "entrypoint": "Add 'entrypoint: module:Class', the Trial to train.",
    "searcher": "Add 'searcher: {name: single, metric: <validation metric>, max_length: {epochs: 1}}'.",
    "searcher.metric": "Name the validation metric that decides which trial is best.",
    "searcher.max_length": "Set how long a trial trains, such as 'max_length: {epochs: 10}'.",
}
SLOT_NUMBER, SLOT_RANGE = "(a number of slots)", "(a range of slots)"
"""The two forms of slots_per_trial, as they stand in the places that pydantic names."""
# A wrong choice explains the unknown keys that follow from it; a misspelt key explains the missing one.
_RANKS = {"searcher_name": 0, "searcher_name_missing": 0, "literal_error": 1, "extra_forbidden": 1}


class Problem(Exception):
    """A violated rule between keys; `path` is the key to point at."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)

    def as_error(self, source: YamlSource) -> ConfigError:
        """The error that is shown to the user."""
        shown = redacted(str(self), secret_values(source.data))
        return ConfigError(f"{source.at(written_path(self.path, source.lines))}: {shown}")


def translate(error: ValidationError, *, source: YamlSource, root: type[BaseModel], at: Loc = ()) -> ConfigError:
    """The first problem pydantic found as one sentence, with the line it is on."""
    problems: list[Any] = [
        {**one, "loc": _without_forms(one["loc"])}
        for one in error.errors(include_url=False)
        if one["type"] != "default_factory_not_called"  # what follows from another problem
    ]
    first, *others = sorted(
        problems,
        key=lambda problem: (
            _RANKS.get(problem["type"], 2),
            source.line(written_path((*at, *problem["loc"]), source.lines)) or math.inf,
        ),
    )
    path = written_path((*at, *first["loc"]), source.lines)
    if first["type"] in ("searcher_name", "searcher_name_missing"):
        path = (*path, "name")
    more = f" ({len(others)} more {'problem' if len(others) == 1 else 'problems'} found.)" if others else ""
    sentence = _sentence(first, path, root=root, searcher=_searcher_settings(source))
    return ConfigError(f"{source.at(path)}: {redacted(sentence, secret_values(source.data))}{more}")


def _without_forms(loc: Loc) -> Loc:
    return tuple(part for part in loc if part not in (SLOT_NUMBER, SLOT_RANGE))


def parameter_problem(error: ValidationError, path: Sequence[str]) -> Problem:
    """The problem of one hyperparameter."""
    first = error.errors(include_url=False)[0]
    full = ("hyperparameters", *path, *[part for part in first["loc"] if part not in TYPES])
    return Problem(full, _sentence(first, full, root=None, searcher=None))


def _searcher_settings(source: YamlSource) -> type[SearcherSettings] | None:
    """The settings class of the searcher named in `source`; None if the name is missing or unknown."""
    block = source.data.get("searcher")
    name = block.get("name") if isinstance(block, Mapping) else None
    name = OLD_NAMES.get(name, name) if isinstance(name, str) else ""
    return SEARCHERS.load(name).settings_type if name in SEARCHERS else None


def _sentence(problem: Any, path: Loc, *, root: type[BaseModel] | None, searcher: type[SearcherSettings] | None) -> str:
    dotted, kind = ".".join(map(str, path)), problem["type"]
    if kind == "extra_forbidden":
        known = sorted(_known_keys(root, problem["loc"][:-1], searcher)) if root is not None else []
        if path[-1] in known:
            value = _short(problem["input"])
            return f"{dotted!r} is {value}: it cannot be read, or conflicts with a newer spelling of it. Keep one."
        if path[:-1] == ("searcher",) and any(path[-1] in kind.model_fields for kind in settings_types().values()):
            assert searcher is not None
            own = ", ".join(searcher.model_fields)
            return f"{dotted!r} is a setting of other searchers; this one has: {own}."
        return f"{dotted!r} is not a known key.{_suggest(str(path[-1]), known)}"
    if kind in ("missing", "searcher_name_missing"):
        remedy = problem["msg"] if kind == "searcher_name_missing" else _REMEDIES.get(dotted, "Add it.")
        return f"{dotted!r} is missing. {remedy}"
    if kind == "searcher_name":
        return str(problem["msg"])
    message: str = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if message.endswith("."):  # a sentence of ours, which names the value
        return message
    if kind in ("dataclass_type", "dict_type", "model_type"):
        message = "must be a mapping of keys to values"
    return f"{dotted!r} is {_short(masked_at(path, problem['input']))}: {message}."


def _suggest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known keys: {', '.join(known)}." if known else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _known_keys(root: type[BaseModel], loc: Loc, searcher: type[SearcherSettings] | None) -> set[str]:
    model: type[BaseModel] | None = root
    for part in loc:
        if part == "searcher" and model is root:
            model = searcher
        elif model is not None and isinstance(part, str) and part in model.model_fields:
            model = next(_models_in(model.model_fields[part].annotation), None)
    path = tuple(str(part) for part in loc)
    old = OLD_SEARCHER_KEYS if path == ("searcher",) else OLD_KEYS.get(path, set())
    return set(model.model_fields if model is not None else ()) | old


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (list, dict, typing.Union, types.UnionType, typing.Annotated):
        for argument in get_args(annotation):
            yield from _models_in(argument)

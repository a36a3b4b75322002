"""Which text and JSON may enter: over the REST API, in a config and on the command line. Decided here alone.

What passes can be stored in any database, sent as JSON and parsed again, and shown in one line where it is a name. The
types are used by the models of requests; `find_fault` checks values without a model, such as hyperparameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, Field

from trek.errors import InputError

MAX_DEPTH = 64
MAX_ITEMS = 100_000
MAX_KEY_CHARACTERS = 1_000
MAX_TEXT_CHARACTERS = 1_000_000
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_SURROGATES = "\ud800-\udfff"
_NOT_IN_TEXT = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_SURROGATES}]")
_NOT_IN_A_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_SURROGATES}]")
_NOT_STORABLE = re.compile(f"[\x00{_SURROGATES}]")

Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """Where a value cannot be accepted, and why: a sentence without its subject and full stop."""

    path: Path
    reason: str


def find_fault(value: Any) -> Fault | None:
    """The first part of a JSON value that cannot be accepted. Takes bounded time and no recursion."""
    for count, (path, depth, part) in enumerate(_parts(value)):
        if count > MAX_ITEMS:
            return Fault((), f"must have at most {MAX_ITEMS} entries")
        if depth > MAX_DEPTH:
            return Fault(path[:3], f"must be nested at most {MAX_DEPTH} levels deep")
        if reason := _fault_of(part):
            return Fault(path, reason)
    return None


def clean(text: str) -> str:
    """`text` that a program wrote, with the characters that cannot be stored or sent replaced."""
    return _NOT_STORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def printable(text: str) -> str:
    """`text` with every character that `Text` refuses replaced."""
    return _NOT_IN_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)


def as_line(text: str) -> str:
    """`text` with every character that `Line` refuses replaced."""
    return _NOT_IN_A_LINE.sub("\N{REPLACEMENT CHARACTER}", text)


def segment(name: str) -> str:
    """`name` as one segment of the path of a URL; InputError if no name can be written so."""
    if reason := _fault_of_text(name, _NOT_IN_A_LINE) or _fault_of_segment(name):
        raise InputError(f"the name {name!r} {reason}.")
    return quote(name, safe="")


def _parts(value: Any) -> Iterator[tuple[Path, int, Any]]:
    """Every part of a value with its path and depth, mappings before what is in them."""
    waiting: list[tuple[Path, int, Any]] = [((), 0, value)]
    while waiting:
        path, depth, part = waiting.pop()
        yield path, depth, part
        if isinstance(part, Mapping):
            waiting += [((*path, str(key)), depth + 1, inner) for key, inner in part.items()]
        elif isinstance(part, list | tuple):
            waiting += [((*path, index), depth + 1, inner) for index, inner in enumerate(part)]


def _fault_of(part: Any) -> str | None:
    if isinstance(part, str):
        return _fault_of_text(part, _NOT_IN_TEXT)
    if isinstance(part, Mapping):
        return next((reason for key in part if (reason := _fault_of_key(str(key)))), None)
    if isinstance(part, float) and not math.isfinite(part):
        return f"must be a finite number, got {part}"
    if isinstance(part, int) and not _MIN_INT <= part <= _MAX_INT:
        return "must be a whole number of at most 64 bits"
    return None


def _fault_of_key(key: str) -> str | None:
    if len(key) > MAX_KEY_CHARACTERS:
        return f"must have keys of at most {MAX_KEY_CHARACTERS} characters, got one of {len(key)}"
    found = _NOT_IN_A_LINE.search(key)
    return f"must not have a key with {_character(found.group())}" if found else None


def _fault_of_text(text: str, forbidden: re.Pattern[str]) -> str | None:
    if len(text) > MAX_TEXT_CHARACTERS:
        return f"must have at most {MAX_TEXT_CHARACTERS} characters, got {len(text)}"
    found = forbidden.search(text)
    return f"must not contain {_character(found.group())}" if found else None


def _character(found: str) -> str:
    kind = "surrogate without its pair" if "\ud800" <= found <= "\udfff" else "control character"
    return f"the {kind} U+{ord(found):04X}"


def _as_line(text: str) -> str:
    return _accepted(text, _fault_of_text(text, _NOT_IN_A_LINE))


def _as_text(text: str) -> str:
    return _accepted(text, _fault_of_text(text, _NOT_IN_TEXT))


def _as_secret(text: str) -> str:
    return _accepted(text, _fault_of_text(text, _NOT_STORABLE))


def _accepted(text: str, reason: str | None) -> str:
    if reason:
        raise ValueError(reason)
    return text


def _fault_of_segment(name: str) -> str:
    """Why URLs cannot have this name in their path; empty if they can."""
    return "" if name.strip(".") else "must not be empty, nor consist of dots"


def _as_path_name(text: str) -> str:
    reason = _fault_of_segment(text) or ("must not contain '/'" if "/" in text else "")
    if reason:
        raise ValueError(reason)
    return _as_line(text)


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    if fault := find_fault(value):
        where = ".".join(map(str, fault.path))
        raise ValueError(f"{where} {fault.reason}" if where else fault.reason)
    return value


def _clean(raw: Any) -> Any:
    return clean(raw) if isinstance(raw, str) else raw


def _finite_or_none(raw: Any) -> Any:
    """Metrics with None for values that no JSON can hold."""
    if not isinstance(raw, dict) or not any(_is_not_finite(value) for value in raw.values()):
        return raw
    return {name: None if _is_not_finite(value) else value for name, value in raw.items()}


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


Line = Annotated[str, AfterValidator(_as_line)]
"""A name or a label: one line without control characters."""
PathName = Annotated[str, AfterValidator(_as_path_name)]
"""A line by which URLs name something in their path."""
Text = Annotated[str, AfterValidator(_as_text)]
"""What people write: lines without other control characters."""
Secret = Annotated[str, AfterValidator(_as_secret)]
"""A password: anything that can be stored."""
Output = Annotated[str, BeforeValidator(_clean)]
"""What programs write, such as an error: what cannot be stored is replaced, since refusing it would hide the rest."""
JsonObject = Annotated[dict[str, Any], AfterValidator(_as_json)]
"""A JSON object of bounded depth, size and numbers, with text that can be shown."""
MetricName = Annotated[str, Field(pattern="^[^\\x00-\\x1f\\x7f-\\x9f]*$", max_length=200)]
"""The name of a metric or of a group of them. A pattern, since it is checked for each metric of each report."""
Metrics = Annotated[dict[MetricName, float | None], BeforeValidator(_finite_or_none)]
"""Metrics by name, with None for a value that is not finite."""

"""`--where` and `--sort`: a small language of comparisons over the rows of a list. Never runs code.

    hparams.lr < 0.1 and (state = completed or not best_metric > 3)

Names are keys of the row, with dots for nested ones. `metric` is the best value of the searcher's metric; `hparams` of
an experiment are those of its best trial. `~` matches part of a text; `labels=beta` matches rows that have that label.
A row without the key does not match and sorts last; a name that no row has is an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trek.errors import InputError

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
_TOKEN = re.compile(r"\s*(<=|>=|!=|==|[<>=~()]|'[^']*'|\"[^\"]*\"|[^\s<>=!~()'\"]+)")
_ALIASES = {"metric": ("best_metric", "metric"), "hparams": ("hparams", "best_hparams", "hyperparameters")}
_MISSING = object()
MAX_CHARACTERS = 10_000
MAX_DEPTH = 64


def parse_where(text: str) -> Test:
    """A test of rows; InputError where the text is invalid."""
    parser = _Parser(text)
    test = parser.either()
    parser.expect_end()
    return test


def check_names(names: Iterable[str], rows: Sequence[Row]) -> None:
    """InputError for a name that no row has: an empty list because of a misspelt name would mislead."""
    known = sorted({*_ALIASES, *(key for row in rows for key in row)})
    for name in names:
        head = name.partition(".")[0]
        if rows and head not in known:
            near = difflib.get_close_matches(head, known, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
            raise InputError(f"unknown key {name!r}. {remedy}")


def names_in(text: str) -> list[str]:
    """The names that a test compares."""
    parser = _Parser(text)
    parser.either()
    return parser.names


def sort_rows(rows: Sequence[Any], key: str, *, get: Callable[[Any], Row]) -> list[Any]:
    """Rows in ascending order of `key`, or descending for `-key`. Rows without it come last."""
    name, is_reversed = key.removeprefix("-"), key.startswith("-")
    present = [row for row in rows if _lookup(get(row), name) not in (_MISSING, None)]
    absent = [row for row in rows if _lookup(get(row), name) in (_MISSING, None)]
    try:
        return sorted(present, key=lambda row: _lookup(get(row), name), reverse=is_reversed) + absent
    except TypeError:
        raise InputError(f"rows cannot be sorted by {name!r}: its values have different types.") from None


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self.names: list[str] = []

    def either(self) -> Test:
        tests = [self._all()]
        while self._take("or"):
            tests.append(self._all())
        return lambda row: any(test(row) for test in tests)

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error(f"unexpected {self._tokens[self._at]!r}")

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take("and"):
            tests.append(self._one())
        return lambda row: all(test(row) for test in tests)

    def _one(self) -> Test:
        if self._take("not"):
            inner = self._nested(self._one)
            return lambda row: not inner(row)
        if self._take("("):
            inner = self._nested(self.either)
            if not self._take(")"):
                raise self._error("missing ')'")
            return inner
        return self._comparison()

    def _nested(self, parse: Callable[[], Test]) -> Test:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"it must be nested at most {MAX_DEPTH} levels deep")
        inner = parse()
        self._depth -= 1
        return inner

    def _comparison(self) -> Test:
        name, operator, value = self._next("a name"), self._next("a comparison"), self._next("a value")
        if value in ("(", ")"):
            raise self._error(f"expected a value, got {value!r}")
        self.names.append(name)
        if operator not in _OPERATORS:
            raise self._error(f"unknown operator {operator!r}; use one of {' '.join(_OPERATORS)}")
        compare, wanted = _OPERATORS[operator], _value(value)
        return lambda row: _compare(compare, _lookup(row, name), wanted)

    def _take(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at].lower() == token:
            self._at += 1
            return True
        return False

    def _next(self, what: str) -> str:
        if self._at == len(self._tokens):
            raise self._error(f"expected {what} at the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, problem: str) -> InputError:
        return _invalid(self._text, problem)


def _invalid(text: str, problem: str) -> InputError:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return InputError(f"invalid --where {shown!r}: {problem}. Example: 'state=completed'.")


def _tokens(text: str) -> list[str]:
    if len(text) > MAX_CHARACTERS:
        raise _invalid(text, f"it must have at most {MAX_CHARACTERS} characters, got {len(text)}")
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise _invalid(text, f"unexpected {text[at:][:50]!r}")
        tokens.append(found.group(1))
        at = found.end()
    return tokens


def _value(token: str) -> Any:
    if token[0] in "'\"":
        return token[1:-1]
    constants: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
    if token.lower() in constants:
        return constants[token.lower()]
    try:
        return float(token)
    except ValueError:
        return token


def _equals(value: Any, wanted: Any) -> bool:
    """Whether they are equal; a list, such as labels, equals each of its items."""
    if isinstance(value, list | tuple):
        return any(_equals(item, wanted) for item in value)
    return bool(value == wanted) or str(value) == str(wanted)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_contains(item, wanted) for item in value)
    return str(wanted).lower() in str(value).lower()


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": _equals,
    "==": _equals,
    "!=": lambda value, wanted: not _equals(value, wanted),
    "<": lambda value, wanted: bool(value < wanted),
    "<=": lambda value, wanted: bool(value <= wanted),
    ">": lambda value, wanted: bool(value > wanted),
    ">=": lambda value, wanted: bool(value >= wanted),
    "~": _contains,
}


def _compare(compare: Callable[[Any, Any], bool], value: Any, wanted: Any) -> bool:
    if value is _MISSING or (value is None and wanted is not None):
        return False
    try:
        return compare(value, wanted)
    except TypeError:
        return False


def _lookup(row: Row, dotted: str) -> Any:
    head, *rest = dotted.split(".")
    found = (_walk(row, [first, *rest]) for first in _ALIASES.get(head, (head,)))
    return next((value for value in found if value is not _MISSING), _MISSING)


def _walk(row: Row, keys: Sequence[str]) -> Any:
    value: Any = row
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value

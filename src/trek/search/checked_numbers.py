"""CheckedNumbers: models whose numbers are finite, of at most 64 bits, and never true or false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError


class CheckedNumbers(BaseModel):
    """A base of spaces and searcher settings: pydantic itself takes NaN, infinity and booleans for numbers."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, raw: Any) -> Any:
        given = raw if isinstance(raw, Mapping) else {}
        wrong = [name for name, value in given.items() if cls._is_numeric(name) and _holds_boolean(value)]
        if wrong:
            problem = PydanticCustomError("boolean_number", "must be a number, not true or false")
            details = [InitErrorDetails(type=problem, loc=(name,), input=given[name]) for name in wrong]
            raise ValidationError.from_exception_data(cls.__name__, details)
        return raw

    @field_validator("*", mode="after")
    @classmethod
    def _refuse_endless(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, float) and cls._is_numeric(info.field_name) and not math.isfinite(value):
            raise ValueError("must be a finite number")
        if isinstance(value, int) and cls._is_numeric(info.field_name) and not -(2**63) <= value < 2**63:
            raise ValueError("must be a whole number of at most 64 bits")
        return value

    @classmethod
    def _is_numeric(cls, name: Any) -> bool:
        kinds = _plain_types(cls.model_fields[name].annotation) if name in cls.model_fields else ()
        return int in kinds or float in kinds


def _holds_boolean(value: Any) -> bool:
    return any(isinstance(one, bool) for one in (value if isinstance(value, list | tuple) else [value]))


def _plain_types(annotation: Any) -> Sequence[Any]:
    """The types that an annotation is made of, such as those of a union or of a list's items."""
    arguments = get_args(annotation)
    return [kind for one in arguments for kind in _plain_types(one)] if arguments else [annotation]


def describe_invalid(error: ValidationError, *path: str, without: Sequence[str] = ()) -> str:
    """The first problem of a model at `path`: the key, its value, what it must be. Parts `without` are no keys."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    where = ".".join(str(part) for part in (*path, *first["loc"]) if part not in without)
    return f"'{where}' is {first['input']!r}: {message.rstrip('.')}."

"""Options of an Engine as words `KEY=VALUE`, as command lines and variables have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from trek.errors import InputError


def read_engine_options(given: Sequence[str]) -> dict[str, Any]:
    """The options by name; values are read as YAML, so `resources={tpu: 1}` is a mapping."""
    options: dict[str, Any] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise InputError(f"engine option {one!r} is not KEY=VALUE. Write for example placement=SPREAD.")
        try:
            options[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"engine option {one!r}: {value!r} is not a YAML value. Quote it.") from error
    return options

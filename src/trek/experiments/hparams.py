"""`trek.hparams`: the hyperparameters of the trial that a program is run for. Loads nothing heavy."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "TREK_HPARAMS"
"""Holds the trial's hyperparameters as JSON in the environment of a command."""


def hparams(**defaults: Any) -> dict[str, Any]:
    """`defaults` updated with the trial's hyperparameters; outside of a trial, `defaults`.

    With argparse, one line makes every option searchable: `parser.set_defaults(**trek.hparams())`.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return defaults
    from trek.experiments.exit_report import report_uncaught_errors

    report_uncaught_errors()
    return {**defaults, **json.loads(text)}


def flatten(values: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, prefix=f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat

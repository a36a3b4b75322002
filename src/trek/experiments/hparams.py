"""`trek.hparams`: the hyperparameters of the trial that a program is run for. Loads nothing heavy."""

from __future__ import annotations

import json
import os
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

"""`trek.hparams`: the hyperparameters of the trial that a program is run for. Loads nothing heavy."""

from __future__ import annotations

import json
import os
from typing import Any

VARIABLE = "TREK_HPARAMS"
"""Holds the trial's hyperparameters as JSON in the environment of a command."""


def hparams(**defaults: Any) -> dict[str, Any]:
    """`defaults` with the trial's hyperparameters over them; outside of a trial just `defaults`.

    With argparse, one line makes every option one that can be searched over: `parser.set_defaults(**trek.hparams())`.
    """
    told = os.environ.get(VARIABLE)
    if not told:
        return defaults
    from trek.experiments.exit_report import leave_word_of_errors

    leave_word_of_errors()
    return {**defaults, **json.loads(told)}

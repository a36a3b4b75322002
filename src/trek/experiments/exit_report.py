"""Reports the uncaught error that ends a program which is run as a trial, with the traceback of the user's frames.

A program may raise InvalidHP to reject its hyperparameters, as a Trial does.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

_is_installed = False


def report_uncaught_errors() -> None:
    """From now on, write the error that ends this process to its run's folder; what is printed does not change."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _write(error)
        before(kind, error, trace)

    sys.excepthook = hook


def _write(error: BaseException) -> None:
    from trek.engines.member_folder import MemberFolder
    from trek.train.jobs.rank_outcome import RankOutcome

    rank = int(os.environ.get("RANK", "0"))
    RankOutcome.of_error(rank, error).write(MemberFolder.from_env())

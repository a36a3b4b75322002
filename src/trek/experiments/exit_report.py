"""The outcome of a program that is run as a trial and ended by an error: whose error, in its own frames.

InvalidHP is how a program rejects its hyperparameters, as a Trial does.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

_is_watching = False


def leave_word_of_errors() -> None:
    """From now on, write down the error that ends this process; what is printed stays as it is."""
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
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

"""What the end of a gang means: what happened, and what becomes of the trial. Pure decisions."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trek.client.models import Failure
from trek.engines import Exit
from trek.train.jobs.rank_outcome import RankOutcome, find_cause

EndingKind = Literal["done", "stopped", "user", "input", "outside", "rejected", "lost"]


@dataclass(frozen=True)
class Ending:
    """How one run of a trial ended. `lost`: a process vanished and left no word."""

    kind: EndingKind
    message: str = ""
    traceback: str = ""
    stop_reason: str = ""


@dataclass(frozen=True)
class Standing:
    """What the decision needs to know of a trial."""

    wanted: str
    restarts: int
    max_restarts: int
    has_new_checkpoint: bool
    """Whether this run left a checkpoint newer than the one it started from."""
    retries_cancelled: str = ""


PAUSE_S = 2.0
MAX_PAUSE_S = 300.0

Next = Literal["killed", "completed", "reached", "paused", "queued", "restart", "errored", "rejected"]


def read_ending(exits: Sequence[Exit], outcomes: Sequence[RankOutcome]) -> Ending:
    """What happened, from the processes' exits in order and their own words in order.

    A cause comes before its effects: a process that vanished explains the errors of its peers that follow, and the
    first process that told of an error explains the others'.
    """
    told = {outcome.rank for outcome in outcomes}
    first = next((exit_ for exit_ in exits if exit_.code != 0), None)
    if first is not None and first.rank not in told:
        return Ending("lost", _describe(first))
    failed = find_cause(outcomes)
    if failed is not None:
        return Ending(failed.kind, failed.message, failed.traceback)
    leader = next((outcome for outcome in outcomes if outcome.rank == 0), None)
    if leader is None:
        return Ending("lost", "the trial ended without a word")
    if leader.stop_reason:
        return Ending("stopped", stop_reason=leader.stop_reason)
    return Ending("done")


def decide(ending: Ending, standing: Standing) -> Next:
    """What becomes of the trial.

    An error of the user's code is final, unless the run got on far enough to leave a checkpoint: what fails at the same
    place again will fail there for ever. What the outside did is tried again, as often as the config allows.
    """
    if standing.wanted == "kill":
        return "killed"
    if ending.kind == "done":
        return "reached"
    if ending.kind == "stopped":
        return _after_stop(ending.stop_reason, standing)
    if ending.kind in ("input", "rejected"):
        return "errored" if ending.kind == "input" else "rejected"
    if standing.wanted == "stop":
        return "completed"
    may_retry = ending.kind != "user" or standing.has_new_checkpoint
    if may_retry and not standing.retries_cancelled and standing.restarts < standing.max_restarts:
        return "restart"
    return "errored"


def pause_after(ending: Ending, *, restarts: int) -> float:
    """Seconds until a trial that was restarted so often already is started again.

    What the outside did needs time to pass, and everybody's trials ask it again; a process that vanished does not.
    """
    return min(PAUSE_S * 2.0 ** min(restarts, 30), MAX_PAUSE_S) if ending.kind == "outside" else 0.0


def failure_of(ending: Ending) -> Failure:
    """Whose fault it was."""
    if ending.kind in ("user", "lost"):
        return "user"
    return ending.kind if ending.kind in ("input", "outside", "rejected") else ""


def _after_stop(reason: str, standing: Standing) -> Next:
    if reason == "searcher" or standing.wanted == "stop":
        return "completed"
    if reason in ("user", "early_stopping"):
        return "reached"
    return "paused" if standing.wanted == "pause" else "queued"


def _describe(exit_: Exit) -> str:
    if exit_.code < 0:
        try:
            name = signal.Signals(-exit_.code).name
        except ValueError:
            name = f"signal {-exit_.code}"
        return f"rank {exit_.rank} (process {exit_.pid}) was killed by {name}"
    last = f": {exit_.last_lines[-1]}" if exit_.last_lines else ""
    return f"rank {exit_.rank} (process {exit_.pid}) exited with code {exit_.code}{last}"

"""What the end of a gang means: what happened, and what the trial does next. Pure decisions."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trek.client.models import Failure
from trek.elastic.elastic_gang import JobEnd
from trek.engines import Exit
from trek.engines.base import WORKER
from trek.train.jobs.rank_outcome import RankOutcome, find_cause

EndingKind = Literal["done", "stopped", "user", "input", "outside", "rejected", "lost"]


@dataclass(frozen=True)
class Ending:
    """How one run of a trial ended. `lost`: a process vanished without reporting an outcome."""

    kind: EndingKind
    message: str = ""
    traceback: str = ""
    stop_reason: str = ""


@dataclass(frozen=True)
class Standing:
    """What the decision needs to know about a trial."""

    wanted: str
    restarts: int
    max_restarts: int
    has_new_checkpoint: bool
    """Whether this run saved a checkpoint newer than the one it started from."""
    retries_cancelled: str = ""


RESTART_DELAY_S = 2.0
MAX_RESTART_DELAY_S = 300.0

Next = Literal["killed", "completed", "reached", "paused", "queued", "restart", "errored", "rejected"]


def read_ending(exits: Sequence[Exit], outcomes: Sequence[RankOutcome]) -> Ending:
    """What happened, from the processes' exits and the outcomes they reported, both in order of time.

    A cause comes before its effects: a process that vanished explains the later errors of its peers, and the first
    reported error explains the others.
    """
    reported = {outcome.rank for outcome in outcomes}
    first = next((exit_ for exit_ in exits if exit_.code != 0 and exit_.role == WORKER), None)
    if first is not None and first.rank not in reported:
        return Ending("lost", _describe(first))
    failed = find_cause(outcomes)
    if failed is not None:
        return Ending(failed.kind, failed.message, failed.traceback)
    leader = next((outcome for outcome in outcomes if outcome.rank == 0), None)
    if leader is None:
        return Ending("lost", "the trial ended without reporting an outcome")
    if leader.stop_reason:
        return Ending("stopped", stop_reason=leader.stop_reason)
    return Ending("done")


def read_elastic_ending(end: JobEnd, outcomes: Sequence[RankOutcome]) -> Ending:
    """What happened to an elastic run, whose processes may have been killed or sent away while it went on.

    An error that a process reported is the run's; otherwise the last to report decides, since it was there at the end.
    """
    failed = find_cause(outcomes)
    if failed is not None:
        return Ending(failed.kind, failed.message, failed.traceback)
    if end.reason:
        last = f"; the last one: {_describe(end.failed)}" if end.failed is not None else ""
        return Ending("lost", f"the workers cannot go on: {end.reason}{last}")
    if end.failed is not None:
        return Ending("lost", _describe(end.failed))
    if not outcomes:
        return Ending("lost", "the trial ended without reporting an outcome")
    reason = outcomes[-1].stop_reason
    return Ending("stopped", stop_reason=reason) if reason else Ending("done")


def decide(ending: Ending, standing: Standing) -> Next:
    """What the trial does next.

    An error in the user's code is final unless the run saved a new checkpoint: without one, a restart would fail at the
    same place again. Failures of the outside are retried as often as the config allows.
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


def delay_after(ending: Ending, *, restarts: int) -> float:
    """Seconds until a trial that was restarted `restarts` times is started again.

    A failure of the outside needs time to be mended, and retries of many trials add to its load; a process that
    vanished can be restarted at once.
    """
    return min(RESTART_DELAY_S * 2.0 ** min(restarts, 30), MAX_RESTART_DELAY_S) if ending.kind == "outside" else 0.0


def failure_of(ending: Ending) -> Failure:
    """What caused the failure; empty where there was none."""
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

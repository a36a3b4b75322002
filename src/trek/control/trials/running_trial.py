"""Running: one gang of one trial, as the supervisor sees it until it has ended and everything of it was taken in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from trek.control.trials.elastic_watch import ElasticWatch
from trek.control.trials.endings import Ending, read_elastic_ending, read_ending
from trek.control.trials.log_intake import LogIntake
from trek.control.trials.spool_intake import SpoolIntake
from trek.engines import Exit, Gang
from trek.train.jobs.rank_outcome import read_outcomes

_LOG = logging.getLogger(__name__)


@dataclass
class Running:
    """One gang of one trial."""

    trial_id: int
    experiment_id: int
    run: int
    slots: list[int]
    gang: Gang
    logs: LogIntake
    spool: SpoolIntake
    elastic: ElasticWatch | None = None
    """Watches the workers of an elastic trial."""
    num_workers: int = 0
    """How many workers of an elastic trial are on record."""
    failed_s: float | None = None
    problem: str = ""
    """What keeps it from being taken in; see `note`."""
    stopper: threading.Thread | None = field(default=None, repr=False)

    def note(self, error: Exception) -> None:
        """Log what keeps the run from being taken in, when it begins: it is tried again in every round."""
        problem = f"{type(error).__name__}: {error}"
        if problem != self.problem:
            self.problem = problem
            _LOG.error("trial %d cannot be taken in: %s", self.trial_id, problem, exc_info=error)

    def exits(self) -> list[Exit] | None:
        """How the processes ended, once none of them is left or comes back."""
        is_going_on = self.elastic is not None and self.elastic.end is None
        return None if is_going_on else self.gang.wait(0)

    def ending(self, exits: Sequence[Exit]) -> Ending:
        """How the run ended."""
        outcomes = read_outcomes(self.gang)
        if self.elastic is None or self.elastic.end is None:
            return read_ending(exits, outcomes)
        return read_elastic_ending(self.elastic.end, outcomes)

    def join(self) -> None:
        """Wait for the threads of a gang that has ended."""
        if self.stopper is not None:
            self.stopper.join()
        if self.elastic is not None:
            self.elastic.join()

    def stop(self, *, grace_s: float) -> None:
        """Ask the gang to end, without waiting for it."""
        if self.elastic is not None:
            self.elastic.stop(grace_s=grace_s)
        elif self.stopper is None:
            self.stopper = threading.Thread(target=self.gang.stop, kwargs={"grace_s": grace_s}, name="trek-stopper")
            self.stopper.start()

"""StartingTrial: one run of a trial while its gang is started, off the supervisor's thread: a cluster may have no room.

The supervisor asks now and then whether it is done, and then takes what was opened, or how the run ended instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.endings import Ending
from trek.control.trials.trial_gangs import OpenGang, TrialGangs
from trek.engines import GangSpec
from trek.errors import InputError, NoRoom, StartCancelled, TrekError

_LOG = logging.getLogger(__name__)


class StartingTrial:
    """See the module. `wake` is called when it is done."""

    def __init__(
        self, experiment: ExperimentRow, trial: TrialRow, *, gangs: TrialGangs, wake: Callable[[], None]
    ) -> None:
        self.experiment = experiment
        self.trial = trial
        self._gangs = gangs
        self._wake = wake
        self.result: OpenGang | Ending | None = None
        """What was opened, or how the run ended without a gang; None until that is known."""
        try:
            spec = gangs.prepare(experiment, trial)  # on this thread: trials share folders
        except (TrekError, OSError) as error:
            self.result = _ending_of(error)
            return
        threading.Thread(target=self._start, args=(spec,), name="trek-start", daemon=True).start()

    @property
    def waits_for(self) -> str:
        """What it waits for, in words; empty if it does not wait."""
        return self._gangs.start_waits_for(self.trial)

    def cancel(self) -> None:
        """Give up if it waits. One that does not wait yet does not hear it: call it again until there is a result."""
        self._gangs.cancel_start(self.trial)

    def _start(self, spec: GangSpec) -> None:
        try:
            self.result = self._gangs.start(self.experiment, self.trial, spec)
        except (TrekError, OSError) as error:
            self.result = _ending_of(error)
        except Exception as error:  # noqa: BLE001 - whatever a plug-in engine raises ends this run, not the others
            _LOG.exception("trial %d could not be started", self.trial.id)
            self.result = Ending("outside", f"the trial could not be started: {type(error).__name__}: {error}")
        self._wake()


def _ending_of(error: TrekError | OSError) -> Ending:
    if isinstance(error, StartCancelled):
        return Ending("stopped", stop_reason="preempted")
    if isinstance(error, NoRoom) and not error.is_own_limit:
        return Ending("stopped", str(error), stop_reason="preempted")  # back to the queue: nothing of it has failed
    return Ending("input" if isinstance(error, InputError) else "outside", str(error))

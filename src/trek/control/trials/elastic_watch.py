"""ElasticWatch: polls the gang of one elastic trial on a thread of its own, since a coordinator may take its time.

The supervisor reads what happened and says how many workers there are to be; everything that the gang is asked for is
asked here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue

from sqlalchemy.exc import SQLAlchemyError

from trek.elastic.elastic_gang import ElasticGang, JobEnd
from trek.elastic.joining import membership_settings
from trek.elastic.membership import Change
from trek.elastic.membership_settings import MembershipSettings
from trek.errors import OutsideError, TrekError
from trek.experiments.config import ExperimentConfig
from trek.strategies.strategy_registry import leases_work

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1


def run_settings(config: ExperimentConfig, *, num_slots: int, most: int | None = None) -> MembershipSettings | None:
    """The settings of a run's membership, with at most `most` workers; None if its workers stay the same.

    Asynchronous workers of parameter servers are replaced also if their number is fixed, to `num_slots`. A run that
    nobody survived ends: the supervisor restarts the trial, and counts that.
    """
    elastic, training = config.resources.elastic, config.training
    if elastic is None and (num_slots < 2 or not leases_work(training.strategy, training.strategy_options)):
        return None
    least, largest = (elastic.min, elastic.max) if elastic is not None else (num_slots, num_slots)
    most = largest if most is None else min(most, largest)
    made = membership_settings(min(least, most), most, config.environment.environment_variables)
    return replace(made, max_restarts=0)


class ElasticWatch:
    """One elastic run. `open_gang(on_change)` starts its processes, or finds them again; `wake` is called for news."""

    def __init__(
        self,
        open_gang: Callable[[Callable[[Change], None]], ElasticGang],
        *,
        num_workers: int,
        wake: Callable[[], None],
    ) -> None:
        self._changes: SimpleQueue[Change] = SimpleQueue()
        self._job = open_gang(self._changes.put)
        self._wake = wake
        self._wanted = num_workers
        self._grace_s: float | None = None
        self._woken = threading.Event()
        self.num_training = 0
        """How many workers train together."""
        self.num_alive = num_workers
        """How many workers have a process."""
        self.end: JobEnd | None = None
        """How the job ended, once none of its processes is left."""
        self._thread = threading.Thread(target=self._watch, name="trek-elastic-watch")
        self._thread.start()

    @property
    def job(self) -> ElasticGang:
        """What is watched. Only its gang's logs and files are for others."""
        return self._job

    @property
    def target(self) -> int:
        """How many workers there are to be."""
        return self._wanted

    def take_changes(self) -> list[Change]:
        """Who joined and left since the last call."""
        taken: list[Change] = []
        while True:
            try:
                taken.append(self._changes.get_nowait())
            except Empty:
                return taken

    def scale(self, num_workers: int) -> None:
        """Have another number of workers from the next step boundary on."""
        if num_workers != self._wanted:
            self._wanted = num_workers
            self._woken.set()

    def stop(self, *, grace_s: float) -> None:
        """Let all workers save and end, without waiting for it; those that have not after `grace_s` are killed."""
        if self._grace_s is None:
            self._grace_s = grace_s
            self._woken.set()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def _watch(self) -> None:
        end = JobEnd()
        try:
            end = self._run()
        except TrekError as error:
            end = JobEnd(reason=str(error))
        finally:
            self._job.close()
            self.num_alive = self.num_training = 0
            self.end = end
            self._wake()

    def _run(self) -> JobEnd:
        told = self._tell(0)
        while self._grace_s is None:
            end = self._poll()
            if end is not None:
                return end
            told = self._tell(told)
            self._notice()
            self._woken.wait(_POLL_S)
            self._woken.clear()
        self._job.stop(grace_s=self._grace_s)
        return JobEnd()

    def _poll(self) -> JobEnd | None:
        try:
            return self._job.poll()
        except SQLAlchemyError as error:  # what a worker left could not be stored: nobody takes its place before that
            _LOG.warning("an elastic trial waits for the database: %s", f"{error}".partition("\n")[0])
            return None

    def _tell(self, told: int) -> int:
        """Pass the wanted number on; what the coordinator knows now."""
        wanted = self._wanted
        if wanted == told:
            return told
        try:
            self._job.scale(wanted)
        except OutsideError:  # it is started again by the next poll
            return told
        return wanted

    def _notice(self) -> None:
        before = self.num_alive, self.num_training
        self.num_alive, self.num_training = self._job.num_alive, self._job.num_training
        if before != (self.num_alive, self.num_training):
            self._wake()

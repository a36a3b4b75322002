"""Takes in the reports that an ended run could not deliver: its spool, in bounded parts and bounded transactions.

One call takes one part, so that other trials and other users get their turn in between. A part that is taken in twice,
after a crash of the control plane, changes nothing: rows count once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from sqlalchemy.exc import DBAPIError

from trek.client.models import Report
from trek.control.checkpoints.trial_storage import TrialStorage
from trek.control.store import Store
from trek.control.tables import TrialRow
from trek.control.trials.ingest import take_report
from trek.engines import Gang
from trek.errors import InputError
from trek.experiments.spool import SPOOL, merged, parse_spool
from trek.system.clock import Clock

PART_BYTES = 256 << 10
"""About 2,000 reports."""
MAX_LINE_BYTES = 16 << 20
"""A longer line is not a report, and is left out."""
MAX_SPOOL_BYTES = 1 << 30
"""What comes after it is left out: millions of reports, unless a trial has written something else there."""
_LOG = logging.getLogger(__name__)


class SpoolIntake:
    """One run's spool. `is_done` once all of it was taken in."""

    def __init__(
        self,
        store: Store,
        gang: Gang,
        *,
        trial_id: int,
        run: int,
        storage: TrialStorage,
        clock: Clock,
        ranks: Iterable[int] | None = None,
    ) -> None:
        """Of all workers, since any of an elastic run may have been the leader; or of `ranks` alone."""
        self._store = store
        self._gang = gang
        self._trial_id = trial_id
        self._run = run
        self._storage = storage
        self._clock = clock
        self._ranks = list(ranks) if ranks is not None else None
        self._position = 0
        self.is_done = False

    def take_part(self) -> None:
        """Take the next part in."""
        if self._ranks is None:
            self._ranks = list(range(self._gang.num_workers))
        part, is_last = self._next_part(self._ranks[0])
        if reports := parse_spool(part, run=self._run):
            self._take(reports)
        self._position += len(part)
        if not is_last and self._position >= MAX_SPOOL_BYTES:
            _LOG.warning("trial %d: its spool is too large; reports after the first GiB are left out", self._trial_id)
            is_last = True
        if is_last:
            del self._ranks[0]
            self._position = 0
        self.is_done = not self._ranks

    def take_all(self) -> None:
        """Take everything in."""
        while not self.is_done:
            self.take_part()

    def _next_part(self, rank: int) -> tuple[bytes, bool]:
        """Whole lines, and whether they are the last; what a crash left of an unfinished one is not read."""
        size = PART_BYTES
        while True:
            data = self._gang.read_file(SPOOL, rank=rank, start=self._position, size=size) or b""
            end = data.rfind(b"\n") + 1
            is_last = len(data) < size
            if end or is_last or size >= MAX_LINE_BYTES:
                return data[:end] or data, is_last
            size *= 4

    def _take(self, reports: Sequence[Report]) -> None:
        try:
            self._store_report(merged(reports, run=self._run))
        except (InputError, DBAPIError, ValueError) as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            if len(reports) == 1:
                _LOG.warning("trial %d: a report in its spool cannot be stored: %s", self._trial_id, error)
                return
            for report in reports:
                self._take([report])

    def _store_report(self, report: Report) -> None:
        with self._store.writing() as session:
            trial = session.get_one(TrialRow, self._trial_id)
            take_report(session, trial, _with_own_checkpoints(report, self._storage), now_s=self._clock.now_s())


def _with_own_checkpoints(report: Report, storage: TrialStorage) -> Report:
    """A report that a trial left behind, without checkpoints that are not in its storage."""
    own = [checkpoint for checkpoint in report.checkpoints if storage.has(checkpoint.path)]
    if len(own) < len(report.checkpoints):
        _LOG.warning("a trial reported checkpoints outside of its storage %s, which are ignored", storage.address)
    return report.model_copy(update={"checkpoints": own})

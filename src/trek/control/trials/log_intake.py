"""Takes the logs of running trials into the store: a bounded part of each in a round, and a bounded amount in all.

A trial whose log is larger than the limit keeps its beginning and its end, with a line between them that says what is
missing. The whole log stays in the file of its process as long as the trial is not deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from trek.control.store import Store, Subject
from trek.control.tables import TrialRow
from trek.control.trials.ingest import take_lines
from trek.engines import Gang, LogLine
from trek.experiments.log_patterns import LogPatterns
from trek.system.clock import Clock

MAX_LOG_BYTES = 64 << 20
"""How much of the log of one trial is stored, unless the control plane is told otherwise."""
END_BYTES = 64 << 10
"""How much of the end of a larger log is stored as well: it says why a trial failed."""
_LINE_BYTES = 40
"""What a line takes beside its text, so that empty lines count too."""


class LogIntake:
    """The log of one run of one trial. `positions` say how far that of each rank was taken in."""

    def __init__(
        self,
        store: Store,
        gang: Gang,
        *,
        trial_id: int,
        positions: Sequence[int],
        cancel_patterns: LogPatterns,
        clock: Clock,
        max_bytes: int,
        used_bytes: int,
    ) -> None:
        self._store = store
        self._gang = gang
        self._trial_id = trial_id
        self._positions = list(positions)
        self._cancel_patterns = cancel_patterns
        self._clock = clock
        self._max_bytes = max_bytes
        self._is_full = used_bytes >= max_bytes
        self._has_end: set[int] = set()

    def take_part(self, *, is_over: bool) -> bool:
        """Take the next part of each rank's log; False if there is nothing left for now."""
        found = False
        self._positions += [0] * (self._gang.num_workers - len(self._positions))  # an elastic gang may have grown
        for rank in range(len(self._positions)):
            if self._is_full:
                found |= is_over and self._take_end(rank)
            else:
                found |= self._take_next(rank)
        return found

    def skip_to_end(self) -> None:
        """Take only the end of what is left, because nobody waits for the rest."""
        self._is_full = True

    def _take_next(self, rank: int) -> bool:
        lines = self._gang.read_log(rank, self._positions[rank])
        if lines:
            self._positions[rank] = self._keep(rank, lines)
        return bool(lines)

    def _take_end(self, rank: int) -> bool:
        """The last lines of a log that was not stored completely."""
        if rank in self._has_end:
            return False
        self._has_end.add(rank)
        before = self._positions[rank]
        lines = [line for line in self._gang.read_log(rank, -END_BYTES) if line.end > before]
        if lines:
            first = lines[0].end - len(lines[0].text.encode()) - 1
            missing = [LogLine(_missing(first - before), first)] if first > before else []
            self._keep(rank, [*missing, *lines], is_end=True)
        return False

    def _keep(self, rank: int, lines: Sequence[LogLine], *, is_end: bool = False) -> int:
        """Store lines as far as they fit; the position after them."""
        found = self._cancel_patterns.first_match([line.text for line in lines])
        changed: list[Subject] = []
        with self._store.writing(about=changed) as session:
            trial = session.get_one(TrialRow, self._trial_id)
            changed += [("logs", trial.id), ("experiment", trial.experiment_id)]
            kept = list(lines) if is_end else self._within_limit(lines, used=trial.log_bytes)
            pairs = [(line.end, line.text) for line in kept]
            take_lines(session, trial, rank=rank, lines=pairs, now_s=self._clock.now_s())
            trial.log_bytes += sum(_size(line) for line in kept)
            trial.retries_cancelled = found or trial.retries_cancelled
        return kept[-1].end

    def _within_limit(self, lines: Sequence[LogLine], *, used: int) -> list[LogLine]:
        """As many of the lines as fit, and then one that says so."""
        kept: list[LogLine] = []
        for line in lines:
            used += _size(line)
            if used > self._max_bytes:
                self._is_full = True
                return [*kept, LogLine(_full(self._max_bytes), line.end)]
            kept.append(line)
        return kept


def _size(line: LogLine) -> int:
    return len(line.text.encode(errors="replace")) + _LINE_BYTES


def _full(max_bytes: int) -> str:
    return (
        f"trek: warning: this trial has written more than {max_bytes / 2**20:g} MiB of log; the rest is not stored. "
        "Its last lines follow when it ends; print less, or raise the limit with `trek up --max-log-mb`."
    )


def _missing(num_bytes: int) -> str:
    return f"trek: warning: {num_bytes:,} bytes of the log were left out here."

"""JobOutput: what the processes of a job write, shown by the program that started them.

Lines are printed as they come, from the thread that watches the job. Messages of the leader wait for `handle_messages`,
so that loggers are called from the thread that started the job.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from trek.elastic.membership import Change
from trek.engines import OutputLine
from trek.engines.base import WORKER
from trek.train.jobs.messages import read_message
from trek.train.loggers.base import Logger
from trek.train.loggers.sent import call_loggers
from trek.train.loop.progress import BarScreen, print_above_bars


class JobOutput:
    """The output of one job. `loggers` are called with what the leader reports, and closed with the output."""

    def __init__(self, *, loggers: Sequence[Logger] = (), hparams: Mapping[str, object] | None = None) -> None:
        self._loggers = loggers
        self._hparams = hparams or {}
        self._messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._screen = BarScreen()
        self._has_started = False
        self._has_ended = False

    def on_line(self, line: OutputLine) -> None:
        """Print a line of the leader as it is, that of other ranks with their rank before it."""
        message = read_message(line.text) if line.role == WORKER and line.stream == "stderr" else None
        if message is not None:
            self._messages.put(message)
            return
        stream = sys.stdout if line.stream == "stdout" else sys.stderr
        print_above_bars(line.text if line.rank == 0 else f"[rank {line.rank}] {line.text}", file=stream)
        stream.flush()

    def on_change(self, change: Change) -> None:
        """Say who has joined or left an elastic job, and why."""
        print_above_bars(f"trek: {change.sentence}", file=sys.stderr)

    def handle_messages(self) -> None:
        """Draw bars and call loggers, as the messages since the last call say."""
        while True:
            try:
                message = self._messages.get_nowait()
            except Empty:
                return
            if "bar" in message:
                self._screen.show(message)
            else:
                self._has_started = self._has_started or message["logger"] == "start"
                self._has_ended = message["logger"] == "end"
                call_loggers(self._loggers, message, hparams=self._hparams)

    def close(self) -> None:
        """Handle what is left, and close the loggers."""
        try:
            self.handle_messages()
        finally:
            self._screen.close()
            for logger in self._loggers:
                if self._has_started and not self._has_ended:  # the leader was lost, and no other took its place
                    logger.end("failed")
                logger.close()

"""Recording a run in the control plane while it runs: reads the run's records, and sends them when they changed.

The run itself knows nothing of it: a thread reads the records with its own connection, so a step costs the same with
and without a master, and a master that is slow or unreachable delays nothing. What could not be sent is sent later; at
the end the last state has a few seconds to arrive.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trek.errors import TrekError
from trek.flow.flow_reader import FlowReader

if TYPE_CHECKING:
    from trek.client.client import Client

PERIOD_S = 0.5
HEARTBEAT_S = 15.0
"""How often a run in which nothing happens is reported, so that it does not count as lost."""
AWAY_PERIOD_S = 5.0
LAST_WAIT_S = 5.0
_TIMEOUT_S = 2.0
_SHARE = 10
"""Of its time the thread sends at most one part in so many: a run of thousands of steps is a large message."""


@contextmanager
def recording(flow: str, run: str, *, home: Path, master: str | None) -> Iterator[None]:
    """Record what happens in the block at `master`; without one nothing is sent: the local control plane reads here."""
    if not master:
        yield
        return
    recorder = _Recorder(flow, run, home=home, master=master)
    recorder.start()
    try:
        yield
    finally:
        recorder.finish()


class _Recorder(threading.Thread):
    """Sends the run's records until it is finished, and then once more."""

    def __init__(self, flow: str, run: str, *, home: Path, master: str) -> None:
        super().__init__(name="trek-flow-recorder", daemon=True)
        self._flow, self._run_id, self._home, self._master = flow, run, home, master
        self._is_over = threading.Event()
        self._has_warned = False
        self._pause_s = PERIOD_S

    def finish(self) -> None:
        """Send the last state, waiting for a limited time."""
        self._is_over.set()
        self.join(LAST_WAIT_S)
        if self.is_alive():
            self._warn(f"{self._master} did not answer in time")

    def run(self) -> None:
        """The thread."""
        from trek.client.client import Client
        from trek.client.discovery import find_control_plane

        try:
            address, _ = find_control_plane(self._master)
            with Client(address, timeout_s=_TIMEOUT_S) as client, closing(self._open()) as store:
                self._follow(client, store)
        except (TrekError, sqlite3.Error) as error:
            self._warn(str(error))

    def _open(self) -> FlowReader:
        return FlowReader(self._flow, home=self._home)

    def _follow(self, client: Client, store: FlowReader) -> None:
        sent_version, sent_at = None, 0.0
        while True:
            is_last = self._is_over.is_set()
            version = store.version()
            is_due = is_last or version != sent_version or time.monotonic() - sent_at > HEARTBEAT_S
            if is_due and self._send(client, store):
                sent_version, sent_at = version, time.monotonic()
            if is_last:
                return
            self._is_over.wait(self._pause_s)

    def _send(self, client: Client, store: FlowReader) -> bool:
        from trek.flow.records import describe

        began = time.monotonic()
        try:
            client.save_flow_run(describe(self._flow, store.find_run(self._run_id), store.steps(self._run_id)))
        except TrekError as error:
            self._pause_s = AWAY_PERIOD_S
            self._warn(str(error))
            return False
        self._pause_s = max(PERIOD_S, _SHARE * (time.monotonic() - began))
        return True

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = (
                f"trek: warning: this run is not recorded in the control plane: {why.rstrip('.')}. The run continues."
            )
            print(text, file=sys.stderr, flush=True)

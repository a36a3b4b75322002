"""AttachedMember: a process that an earlier gang started and that outlived its starter, found again by its files.

A pid alone may be reused, so the process is named by pid and start time. How it ended is known from its agent, which
outlives the starter too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from trek.engines.agent import start_time
from trek.engines.base import OutputLine
from trek.engines.hosts import AssignedRank
from trek.engines.lines import LineBuffer, Tail
from trek.engines.member import Member, kill_group
from trek.engines.member_folder import MemberFolder
from trek.engines.state_files import read_state
from trek.errors import InputError

_KEYS = ("role", "rank", "host", "pid", "start_time", "agent_pid", "agent_start_time", "devices", "code")


class AttachedMember(Member):
    """One member, as the files in its gang's `output_dir` describe it."""

    def __init__(self, state_path: Path) -> None:
        state = read_state(state_path, *_KEYS)
        super().__init__(AssignedRank(state["rank"], state["host"], state["rank"], 1, 1, state["role"]))
        self._state_path = state_path
        self.pid = state["pid"]
        self.devices = tuple(state["devices"])
        self._identity = (state["pid"], state["start_time"])
        self._agent_identity = (state["agent_pid"], state["agent_start_time"])
        self.log_path = state_path.with_suffix(".log")
        self._log = Tail(self.log_path)
        self._lines = LineBuffer()
        self._folder = MemberFolder(state_path.with_suffix(""))
        self._kill_at: float | None = None
        self.code = self._find_code()

    @property
    def fds(self) -> set[int]:
        """None: it is not a child of this process."""
        return set()

    @property
    def is_polled(self) -> bool:
        """Files announce nothing."""
        return True

    def pump(self) -> Iterator[OutputLine]:
        """Read its log, and its end from what its agent wrote."""
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self.kill()
        if self.code is None:  # afterwards, the file may be that of a member in its place
            self.code = self._find_code()
        yield from self._keep(self._keep_last(self._follow(self._log, self._lines)), "stdout")

    def _find_code(self) -> int | None:
        if _is_alive(self._identity):
            return None
        agent_was_alive = _is_alive(self._agent_identity)
        try:
            code: int | None = read_state(self._state_path, *_KEYS)["code"]
        except (FileNotFoundError, InputError):  # the member has replaced it
            code = None
        # A member without a code whose agent is gone as well was killed together with it.
        return code if code is not None or agent_was_alive else -signal.SIGKILL

    def ask_to_stop(self, *, grace_s: float) -> None:
        """SIGTERM now; a later `pump` kills it when the grace is over."""
        self.is_unwanted = True
        self._kill_at = time.monotonic() + grace_s
        if _is_alive(self._identity):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._identity[0], signal.SIGTERM)

    def ask(self) -> None:
        """Through its folder."""
        self._folder.ask()

    def read_file(self, name: str, *, start: int = 0, size: int | None = None) -> bytes | None:
        """From its folder."""
        return self._folder.read(name, start=start, size=size)

    def write_file(self, name: str, data: bytes) -> None:
        """To its folder."""
        self._folder.write(name, data)

    def kill(self) -> None:
        """SIGKILL to its group; its agent ends the rest."""
        if _is_alive(self._identity):
            kill_group(self._identity[0])

    @property
    def is_gone(self) -> bool:
        """Whether it and its agent ended."""
        return not _is_alive(self._identity) and not _is_alive(self._agent_identity)

    def close(self) -> None:
        """Nothing is held."""

    def let_go(self) -> None:
        """Nothing is held."""


def _is_alive(identity: tuple[int, int | None]) -> bool:
    pid, began = identity
    return began is not None and start_time(pid) == began

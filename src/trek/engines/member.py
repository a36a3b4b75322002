"""Member: one process of a local gang, seen through its agent. Its gang decides when to look at it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from trek.engines.agent import MARK
from trek.engines.base import Exit, OutputLine
from trek.engines.hosts import Placement
from trek.engines.lines import LineBuffer, Pipe, Tail

_LAST_LINES = 60


class Member(ABC):
    """What a gang knows of one process. Used by the gang's own thread, except `ask_to_stop`."""

    def __init__(self, place: Placement) -> None:
        self.rank = place.rank
        self.host = place.host
        self.pid: int | None = None
        self.code: int | None = None
        self.is_unwanted = False
        """Somebody asked it to stop, so how it ends is no failure."""
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    @abstractmethod
    def fds(self) -> set[int]:
        """Open descriptors that become readable when there is something to pump."""

    @property
    @abstractmethod
    def is_polled(self) -> bool:
        """Whether it must be looked at every now and then, since no descriptor tells."""

    @abstractmethod
    def pump(self) -> Iterator[OutputLine]:
        """What it wrote since the last time; sets `pid` and `code` as they become known."""

    @abstractmethod
    def ask_to_stop(self, *, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace."""

    @abstractmethod
    def kill(self) -> None:
        """End it without asking its agent."""

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Whether neither it nor its agent is left."""

    @abstractmethod
    def close(self) -> None:
        """Let go of descriptors."""

    def exit(self) -> Exit:
        """How it ended; only once `code` is known."""
        assert self.code is not None
        return Exit(self.rank, self.host, self.pid or 0, self.code, tuple(self._last_lines))

    def _keep(self, lines: Iterator[str], stream: Literal["stdout", "stderr"]) -> Iterator[OutputLine]:
        for text in lines:
            yield OutputLine(self.rank, stream, text)

    def _keep_last(self, lines: Iterator[str]) -> Iterator[str]:
        for text in lines:
            self._last_lines.append(text)
            yield text


class AgentMember(Member):
    """A member whose agent this process started, here or over ssh."""

    def __init__(self, place: Placement, *, agent_command: Sequence[str], request: Mapping[str, Any]) -> None:
        super().__init__(place)
        self._is_remote = bool(request["inherit_env"])
        self._token = secrets.token_hex(8)
        self._log = Tail(Path(log)) if (log := request.get("log_path")) else None
        self._lines = {name: LineBuffer() for name in ("stdout", "stderr", "log")}
        self._popen = subprocess.Popen(
            agent_command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._stdout = Pipe(self._popen.stdout.fileno())
        self._stderr = Pipe(self._popen.stderr.fileno())
        self._agent_fd = os.pidfd_open(self._popen.pid)
        self._order({**request, "token": self._token})

    @property
    def fds(self) -> set[int]:
        """Its output pipes while they are open, and its agent's end."""
        return {pipe.fd for pipe in (self._stdout, self._stderr) if pipe.is_open} | {self._agent_fd}

    @property
    def is_polled(self) -> bool:
        """A log file announces nothing."""
        return self._log is not None

    def pump(self) -> Iterator[OutputLine]:
        """Read stdout, stderr and the log; once its end is known, all that it wrote before."""
        agent_is_gone = self._popen.poll() is not None
        yield from self._keep(self._lines["stdout"].feed(self._stdout.read()), "stdout")
        yield from self._keep(self._keep_last(self._without_reports(self._stderr.read())), "stderr")
        if agent_is_gone and self.code is None:
            self.code = self._popen.returncode
        if self.code is not None:
            yield from self._keep(self._lines["stdout"].feed(self._stdout.read()), "stdout")
            yield from self._keep(self._lines["stdout"].flush(), "stdout")
            yield from self._keep(self._keep_last(self._lines["stderr"].flush()), "stderr")
        if self._log is not None:
            yield from self._keep(self._keep_last(self._lines["log"].feed(self._log.read())), "stdout")
            if self.code is not None:
                yield from self._keep(self._keep_last(self._lines["log"].flush()), "stdout")

    def _without_reports(self, data: bytes) -> Iterator[str]:
        for line in self._lines["stderr"].feed(data):
            own, mark, report = line.partition(MARK + self._token)
            if mark:
                self._take_report(json.loads(report))
            if own or not mark:
                yield own

    def _take_report(self, report: dict[str, int]) -> None:
        self.pid = report.get("pid", self.pid)
        self.code = report.get("code", self.code)

    def ask_to_stop(self, *, grace_s: float) -> None:
        """Order the agent to."""
        self.is_unwanted = True
        self._order({"stop": grace_s})

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):  # the agent's end is noticed elsewhere
            self._popen.stdin.write(json.dumps(order).encode() + b"\n")
            self._popen.stdin.flush()

    def kill(self) -> None:
        """Kill the agent; its member dies with it."""
        self._popen.kill()

    @property
    def is_gone(self) -> bool:
        """The agent ends only after everything that its member started."""
        return self._popen.poll() is not None

    def close(self) -> None:
        """Reap the agent and close the pipes."""
        if self._popen.wait() != 0 and self.pid is not None and not self._is_remote:
            kill_group(self.pid)  # the agent was killed and could not do it
        os.close(self._agent_fd)
        for file in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert file is not None
            with contextlib.suppress(BrokenPipeError):
                file.close()


def kill_group(pid: int) -> None:
    """SIGKILL to every process of the group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

"""Member: one process of a local gang, seen through its agent. Its gang decides when to look at it."""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import secrets
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from trek.engines.agent import ANSWER, MARK
from trek.engines.agent_process import AgentProcess, AgentUnavailable
from trek.engines.base import Exit, LogLine, OutputLine
from trek.engines.hosts import AssignedRank
from trek.engines.lines import LineBuffer, Tail
from trek.engines.log_file import read_lines
from trek.engines.member_folder import MemberFolder
from trek.errors import InputError
from trek.system.plain_files import remove_tree

_LAST_LINES = 60


class Member(ABC):
    """A gang's view of one process. Used by the gang's own thread, except `ask_to_stop`, `ask` and the files."""

    log_path: Path | None = None
    hint = ""
    """What to do if its host cannot be reached."""
    is_placed = True
    """Whether it has a machine to run on; if not, nobody waits for its process."""

    def __init__(self, assigned: AssignedRank) -> None:
        self.role = assigned.role
        self.rank = assigned.rank
        self.host = assigned.host
        self.node = ""
        """The `id` of the Node that it runs on."""
        self.pid: int | None = None
        self.devices: tuple[str, ...] = ()
        self.code: int | None = None
        self.is_heard = True
        """Whether somebody listens to its lines; if not, only the last ones are read."""
        self.is_unwanted = False
        """It was asked to stop, so its exit code does not count as a failure."""
        self.is_unreached = False
        """Its code is that of the connection to its host, not its own."""
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    @abstractmethod
    def fds(self) -> set[int]:
        """Open descriptors that become readable when there is something to pump."""

    @property
    @abstractmethod
    def is_polled(self) -> bool:
        """Whether it must be polled, because no descriptor signals its changes."""

    @abstractmethod
    def pump(self) -> Iterator[OutputLine]:
        """What it wrote since the last time; sets `pid`, `devices` and `code` as they become known."""

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
        """Close descriptors, and end what a killed agent left running."""

    @abstractmethod
    def let_go(self) -> None:
        """Close descriptors, and leave the member running."""

    @abstractmethod
    def ask(self) -> None:
        """Request an answer, which `read_file` then returns."""

    @abstractmethod
    def read_file(self, name: str, *, start: int = 0, size: int | None = None) -> bytes | None:
        """A part of a file it left in its folder, as far as that is known here."""

    @abstractmethod
    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into its folder, unless it has just ended."""

    @property
    def is_starting(self) -> bool:
        """Whether it has a machine, but no process there yet."""
        return self.is_placed and self.pid is None

    def read_log(self, position: int) -> list[LogLine]:
        """Its log from `position` on."""
        if self.log_path is None:
            raise InputError("this gang keeps no logs: its spec has no output_dir. Set one, or listen with on_line.")
        return read_lines(self.log_path, position, is_over=self.code is not None)

    def exit(self) -> Exit:
        """How it ended; only once `code` is known."""
        assert self.code is not None
        lines, hint = tuple(self._last_lines), self.hint if self.is_unreached else ""
        return Exit(self.rank, self.host, self.pid or 0, self.code, lines, self.role, self.is_unreached, hint)

    def _follow(self, log: Tail, buffer: LineBuffer) -> Iterator[str]:
        """The next lines of its log, and all that are left once its end is known. Never holds much of it at once."""
        if not self.is_heard:
            log.skip()
        while data := log.read():
            yield from buffer.feed(data)
            if self.code is None:
                return
        if self.code is not None:
            yield from buffer.flush()

    def _keep(self, lines: Iterator[str], stream: Literal["stdout", "stderr"]) -> Iterator[OutputLine]:
        for text in lines:
            yield OutputLine(self.rank, stream, text, self.role)

    def _keep_last(self, lines: Iterator[str]) -> Iterator[str]:
        for text in lines:
            self._last_lines.append(text)
            yield text


class AgentMember(Member):
    """A member whose agent this process started, here or over ssh.

    `spawn` starts an agent afresh; `agent`, where given, is tried first.
    """

    def __init__(
        self,
        assigned: AssignedRank,
        *,
        request: Mapping[str, Any],
        spawn: Callable[[], AgentProcess],
        agent: AgentProcess | None = None,
    ) -> None:
        super().__init__(assigned)
        self._is_remote = bool(request["inherit_env"])
        self.hint = f"Check that `ssh {assigned.host}` works without a password." if self._is_remote else ""
        self._token = secrets.token_hex(8)
        self._folder = None if request["folder"] is None else MemberFolder(Path(request["folder"]))
        self._keeps_folder = bool(request["keeps_folder"])
        self._files: dict[str, bytes] = {}
        self._is_done = False
        """Its agent has ended everything and was about to end itself."""
        self.log_path = Path(log) if (log := request.get("log_path")) else None
        self._log = None if self.log_path is None else Tail(self.log_path)
        self._lines = {name: LineBuffer() for name in ("stdout", "stderr", "log")}
        self._spawn = spawn
        self._agent = agent or spawn()
        self._lock = threading.Lock()
        self._orders: list[bytes] = []
        """Orders that have not been sent yet; the first is the request."""
        self._order({**request, "token": self._token})

    @property
    def fds(self) -> set[int]:
        """Its output pipes while they are open, and its agent's end."""
        return {pipe.fd for pipe in (self._agent.stdout, self._agent.stderr) if pipe.is_open} | self._agent.fds

    @property
    def is_polled(self) -> bool:
        """A log file announces nothing."""
        return self._log is not None or self._agent.is_polled

    def pump(self) -> Iterator[OutputLine]:
        """Read stdout, stderr and the log; once its end is known, all that it wrote before."""
        self._send_orders()
        agent_code = self._agent.poll()
        yield from self._keep(self._lines["stdout"].feed(self._agent.stdout.read()), "stdout")
        yield from self._keep(self._keep_last(self._without_reports(self._agent.stderr.read())), "stderr")
        if agent_code is not None and self.code is None:
            self.code = agent_code
            self.is_unreached = self._is_remote
        if self.code is not None:
            yield from self._keep(self._lines["stdout"].feed(self._agent.stdout.read()), "stdout")
            yield from self._keep(self._lines["stdout"].flush(), "stdout")
            yield from self._keep(self._keep_last(self._lines["stderr"].flush()), "stderr")
        if self._log is not None:
            yield from self._keep(self._keep_last(self._follow(self._log, self._lines["log"])), "stdout")

    def _without_reports(self, data: bytes) -> Iterator[str]:
        for line in self._lines["stderr"].feed(data):
            own, mark, report = line.partition(MARK + self._token)
            if mark:
                self._take_report(json.loads(report))
            if own or not mark:
                yield own

    def _take_report(self, report: dict[str, Any]) -> None:
        if "file" in report:
            before = b"" if report["is_first"] else self._files[report["file"]]
            self._files[report["file"]] = before + binascii.a2b_base64(report["part"])
            return
        self._is_done = report.get("done", False)
        self.devices = tuple(report.get("devices", self.devices))
        self.pid = report.get("pid", self.pid)
        self.code = report.get("code", self.code)

    def ask_to_stop(self, *, grace_s: float) -> None:
        """Send the order to the agent; an agent that has not started yet is cancelled."""
        self.is_unwanted = True
        with self._lock:
            if not self._has_agent():
                self._agent.kill()
                return
        self._order({"stop": grace_s})

    def ask(self) -> None:
        """Order the agent to, unless the folder can be reached from here for good."""
        if self._keeps_folder and self._folder is not None:
            self._folder.ask()
            return
        self._files.pop(ANSWER, None)
        self._order({"ask": True})

    def read_file(self, name: str, *, start: int = 0, size: int | None = None) -> bytes | None:
        """From its folder where that stays, else what its agent sent."""
        if self._keeps_folder and self._folder is not None:
            return self._folder.read(name, start=start, size=size)
        data = self._files.get(name)
        return None if data is None else data[start : None if size is None else start + size]

    def write_file(self, name: str, data: bytes) -> None:
        """Order the agent to, unless the folder can be reached from here for good."""
        if self._keeps_folder and self._folder is not None:
            self._folder.write(name, data)
            return
        self._order({"write": name, "data": binascii.b2a_base64(data, newline=False).decode()})

    def _order(self, order: Mapping[str, Any]) -> None:
        with self._lock:
            self._orders.append(json.dumps(order).encode() + b"\n")
        self._send_orders()

    def _send_orders(self) -> None:
        """Send what the agent has not got yet."""
        with self._lock:
            while self._orders and self._has_agent():
                self._agent.write(self._orders.pop(0))

    def _has_agent(self) -> bool:
        """Whether the agent is there; another one is started if it cannot be had."""
        try:
            return self._agent.is_ready()
        except AgentUnavailable:
            before, self._agent = self._agent, self._spawn()
            before.close()  # last, so that no descriptor of the new agent has the number of an old one
            return True

    def kill(self) -> None:
        """Kill the agent; its member dies with it."""
        self._agent.kill()

    @property
    def is_gone(self) -> bool:
        """The agent ends only after everything that its member started."""
        return self._agent.poll() is not None

    def close(self) -> None:
        """Close the pipes; an agent that was killed could not clean up."""
        deque(self._without_reports(self._agent.stderr.read()), maxlen=0)
        if not self._is_done and self.pid is not None and not self._is_remote:
            kill_group(self.pid)
        self.let_go()
        if not self._keeps_folder and self._folder is not None:
            remove_tree(self._folder.path)

    def let_go(self) -> None:
        """Close the pipes."""
        self._agent.close()


def kill_group(pid: int) -> None:
    """SIGKILL to every process of the group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

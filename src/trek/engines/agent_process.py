"""AgentProcess: the starter's handle of an agent: three pipes, and a way to notice its end. `member` has the protocol.

Variants differ in how the agent is started: as a new process here or over ssh (`SpawnedAgent`), or forked from a
process that has imported everything already (`trek.engines.warm`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from trek.engines.lines import Pipe


class AgentProcess(ABC):
    """One agent. Used by the gang's own thread, except `write`, which a lock of its member guards."""

    stdout: Pipe
    stderr: Pipe

    @property
    @abstractmethod
    def fds(self) -> set[int]:
        """Descriptors that become readable when its state changes, not including the pipes."""

    @property
    @abstractmethod
    def is_polled(self) -> bool:
        """Whether it must be polled, because no descriptor signals its changes."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it can be written to. Raises AgentUnavailable if it never will be."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send a line to its stdin; its end is noticed elsewhere."""

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit code once it has ended; -9 where only its end is known."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; its member dies with it."""

    @abstractmethod
    def close(self) -> None:
        """Close the descriptors, whether it has ended or not."""


class AgentUnavailable(Exception):
    """The agent cannot be started this way; the caller tries another."""


class SpawnedAgent(AgentProcess):
    """An agent that is a child of this process: the interpreter, or ssh."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        """`env` None: the environment of this process."""
        self._popen = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.stdout = Pipe(self._popen.stdout.fileno())
        self.stderr = Pipe(self._popen.stderr.fileno())
        self._pidfd = os.pidfd_open(self._popen.pid)

    @property
    def fds(self) -> set[int]:
        """Its end."""
        return {self._pidfd}

    @property
    def is_polled(self) -> bool:
        """Never."""
        return False

    def is_ready(self) -> bool:
        """From the beginning: a pipe holds what is written before it reads."""
        return True

    def write(self, data: bytes) -> None:
        """Send a line to its stdin."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._popen.stdin.write(data)
            self._popen.stdin.flush()

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        return self._popen.poll()

    def kill(self) -> None:
        """End it at once."""
        self._popen.kill()

    def close(self) -> None:
        """Close the pipes. An agent that keeps running is reaped by the process that inherits it."""
        if self._popen.poll() is None:
            self._popen.returncode = 0  # or Popen would warn that it still runs
        os.close(self._pidfd)
        for file in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert file is not None
            with contextlib.suppress(BrokenPipeError):
                file.close()

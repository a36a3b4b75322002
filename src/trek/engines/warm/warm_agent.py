"""The starter's side of a warm start: finding or starting the parent, and an agent that is forked from it.

Nothing here may make a start fail or wait for long: what cannot be had in time raises AgentUnavailable or gives None,
and the member's agent is started afresh.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.engines.agent_process import AgentProcess, AgentUnavailable
from trek.engines.lines import Pipe
from trek.engines.warm.protocol import MAX_REQUEST_BYTES, READY, SOCKET, is_own_user
from trek.engines.warm.refusals import read_refusals, remove_refusals
from trek.engines.warm.rules import parent_environment, parent_key, surroundings
from trek.system.home import trek_home

IDLE_S = 300.0
LOAD_TIMEOUT_S = 60.0
"""How long a parent may take that has yet to import what is asked for, as a fresh process would."""
FORK_TIMEOUT_S = 5.0
"""How long one may take that has imported everything."""
MAX_PARENTS = 3
"""Each holds a few hundred megabytes, so settings that differ between any two trials must not make one each."""

_LOCK_TIMEOUT_S = 1.0
_TITLE_ROOM = 512
_BACKGROUND = '"$@" </dev/null >"$0" 2>&1 &'
"""Detaches the parent, so that no starter has to reap it."""


def warm_folder(environ: Mapping[str, str]) -> Path:
    """Where parents have their folders: `$TREK_WARM_DIR`, or under `$TREK_HOME`."""
    return Path(environ.get("TREK_WARM_DIR") or trek_home(environ) / "warm")


class WarmParents:
    """The warm parents of one folder."""

    def __init__(self, folder: Path, *, idle_s: float = IDLE_S, fork_timeout_s: float = FORK_TIMEOUT_S) -> None:
        self._folder = folder
        self._idle_s = idle_s
        self._fork_timeout_s = fork_timeout_s

    @functools.cached_property
    def _surroundings(self) -> dict[str, Any]:
        return surroundings()

    def open_agent(self, imports: Sequence[str], *, env: Mapping[str, str]) -> WarmAgent | None:
        """An agent of the parent that suits a member with `env`; None if there is none, or it must not import these.

        Returns at once: a parent that is just starting forks the agent when it has imported everything.
        """
        own = self.folder_of(env)
        try:
            if read_refusals(own).keys() & set(imports):
                return None
            connection = self._connect(own) or self._start(own, env)
            if connection is None:
                return None
            timeout_s = self._fork_timeout_s if _has_imported(own, imports) else LOAD_TIMEOUT_S
            return WarmAgent(connection, imports=imports, timeout_s=timeout_s)
        except OSError:  # a folder that cannot be written, a full disk, no free descriptors
            return None

    def folder_of(self, env: Mapping[str, str]) -> Path:
        """Where the parent of a member with `env` is found."""
        return self._folder / parent_key(env, around=self._surroundings)

    def _connect(self, own: Path) -> socket.socket | None:
        if not (own / SOCKET).exists():
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            with _short_path(own) as path:
                connection.connect(f"{path}/{SOCKET}")
            if is_own_user(connection):
                return connection
        except OSError:  # nobody listens any more, or too many wait already
            pass
        connection.close()
        return None

    def _start(self, own: Path, env: Mapping[str, str]) -> socket.socket | None:
        """Start the parent, unless another starter has just done so, and connect to it."""
        for folder in (*reversed(self._folder.parents), self._folder):  # `parents=True` would ignore the mode
            folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(self._folder):
            return None
        with _locked(self._folder / "lock") as is_held:
            if not is_held:
                return None
            if (connection := self._connect(own)) is not None:
                return connection
            if self._count_others(own) >= MAX_PARENTS:
                return None
            with _listen(own) as listener:
                _spawn(listener, folder=own, env=parent_environment(env), idle_s=self._idle_s)
            return self._connect(own)

    def _count_others(self, own: Path) -> int:
        """Parents that run; the folders of those that were killed are removed."""
        count = 0
        for folder in self._folder.glob("[!.]*/"):
            if folder == own:
                continue
            if (connection := self._connect(folder)) is not None:
                connection.close()
                count += 1
            else:
                _remove(folder)
        return count

    def close(self) -> None:
        """End every parent and forget refusals; members that were forked keep running."""
        for folder in list(self._folder.glob("[!.]*/")):
            _remove(folder)
        remove_refusals(self._folder)


class WarmAgent(AgentProcess):
    """An agent that a parent forks, at once or when it has imported everything. See `AgentProcess`."""

    def __init__(self, connection: socket.socket, *, imports: Sequence[str], timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s
        self._pidfd: int | None = None
        self._is_cancelled = False
        stdin, self._stdin = os.pipe()
        self._open_fds = [self._stdin]
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        starter = os.pidfd_open(os.getpid())
        self.stdout, self.stderr = Pipe(out), Pipe(err)
        self._open_fds += [out, err]
        try:
            request = json.dumps({"imports": list(imports), **_inherited()}).encode()
            socket.send_fds(connection, [request], [stdin, stdout, stderr, starter])
        except OSError:
            self.close()
            raise
        finally:
            for fd in (stdin, stdout, stderr, starter):
                os.close(fd)

    @property
    def fds(self) -> set[int]:
        """The answer of the parent; then the agent's end."""
        return {self._connection.fileno() if self._pidfd is None else self._pidfd}

    @property
    def is_polled(self) -> bool:
        """While there is a deadline."""
        return self._pidfd is None

    def is_ready(self) -> bool:
        """Whether the parent has forked it."""
        if self._pidfd is not None:
            return True
        if self._is_cancelled:
            return False
        try:
            answer, fds, _, _ = socket.recv_fds(self._connection, MAX_REQUEST_BYTES, 1)
        except BlockingIOError:
            if time.monotonic() >= self._deadline:
                raise AgentUnavailable("the warm parent takes too long") from None
            return False
        except OSError as error:
            raise AgentUnavailable(f"the warm parent is gone: {error}") from error
        if not answer or not fds:
            raise AgentUnavailable("the warm parent has ended")
        self._pidfd = fds[0]
        self._open_fds.append(self._pidfd)
        return True

    def write(self, data: bytes) -> None:
        """Send a line to its stdin."""
        with contextlib.suppress(BrokenPipeError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._stdin, view) :]

    def poll(self) -> int | None:
        """-9 once it has ended: its code is known to its parent alone. One that was cancelled never was."""
        if self._pidfd is None:
            return -signal.SIGTERM if self._is_cancelled else None
        waiting = select.poll()
        waiting.register(self._pidfd, select.POLLIN)
        return -signal.SIGKILL if waiting.poll(0) else None

    def kill(self) -> None:
        """End it at once, or cancel it before it is forked: without a request it exits by itself."""
        if self._pidfd is None:
            self._is_cancelled = True
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        else:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors."""
        self._connection.close()
        while self._open_fds:
            os.close(self._open_fds.pop())


def _inherited() -> dict[str, object]:
    """What a child of this process would have from it, beyond what a parent's key says."""
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
    python_ignores = (signal.SIGPIPE, signal.SIGXFSZ)
    return {"umask": _umask(), "ignored_signals": [int(one) for one in ignored if one not in python_ignores]}


def _umask() -> int:
    with open("/proc/self/status") as file:  # noqa: PTH123 - os.umask would change it for every thread
        line = next(line for line in file if line.startswith("Umask:"))
    return int(line.split()[1], 8)


def _has_imported(own: Path, imports: Sequence[str]) -> bool:
    try:
        known = json.loads((own / READY).read_text())
    except FileNotFoundError:
        return False
    return set(imports) <= set(known)


def _is_private(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.getuid() and found.st_mode & 0o077 == 0


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """The folder under a short name: the address of a socket has room for 107 bytes."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the lock was acquired in time."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.01)
            else:
                yield True
                return
    finally:
        os.close(fd)


@contextlib.contextmanager
def _listen(own: Path) -> Iterator[socket.socket]:
    """A socket that listens already when its name appears, so that starters need not wait for the parent."""
    _remove(own)
    own.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with _short_path(own) as path:
            listener.bind(f"{path}/.{SOCKET}")
        listener.listen(128)
        (own / f".{SOCKET}").rename(own / SOCKET)
        yield listener


def _spawn(listener: socket.socket, *, folder: Path, env: Mapping[str, str], idle_s: float) -> None:
    program = [sys.executable, "-m", "trek.engines.warm.parent"]
    arguments = [str(listener.fileno()), str(folder), str(idle_s), " " * _TITLE_ROOM]
    subprocess.run(
        ["/bin/sh", "-c", _BACKGROUND, str(folder / "log"), *program, *arguments],
        env=dict(env),
        cwd="/",
        pass_fds=[listener.fileno()],
        start_new_session=True,
        check=True,
        timeout=_LOCK_TIMEOUT_S,
    )


def _remove(folder: Path) -> None:
    """Remove a parent's folder, which makes the parent exit."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(old)
        for path in old.iterdir():
            path.unlink()
        old.rmdir()

"""The agent: a small process beside every member of a gang, here or elsewhere, that owns what the member starts.

It reads one request (JSON, one line) from stdin, runs it in a session of its own, and reports pid and exit on stderr in
lines that carry the request's token. Later lines on stdin are orders; the end of stdin means the starter is gone, and
then everything is killed, unless the request asks to outlive it. As a subreaper it inherits orphans, so even what a
member daemonised is found and ended. Values of the user travel through stdin, never through a shell or a command line.

Only the standard library, and as little of it as can be: it runs on machines and at moments where speed counts. It must
stay single-threaded, which makes fork safe and keeps the parent-death signal of its child meaningful.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from typing import Any

MARK = "\x1e"
"""Opens a report on stderr; the request's token follows."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 1.0
_PARENT_CHECK_S = 1.0


class Agent:
    """Runs one request to its end."""

    def __init__(self, request: dict[str, Any], *, orders: bytes = b"") -> None:
        self._request = request
        self._orders = orders
        self._outlives = bool(request.get("state_path"))
        self._starter = os.getppid()
        self._deadline: float | None = None
        self._code: int | None = None
        self._is_attended = True
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._pid = _start_member(request)
        self._listen_to_signals()
        self._report({"pid": self._pid})

    def _listen_to_signals(self) -> None:
        self._wake, wake_write = os.pipe()
        for fd in (self._wake, wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ask_to_stop(grace_s=5.0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        """Watch the member, obey orders, and return once nothing that it started is left."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(0, select.POLLIN)
        self._obey_whole_lines()
        while self._reap():
            ready = {fd for fd, _ in poll.poll(self._wait_ms())}
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready and not self._obey(os.read(0, 65536)):
                poll.unregister(0)
            self._check_starter()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                _signal_all(_descendants(), signal.SIGKILL)
                self._deadline = time.monotonic() + 0.05

    def _wait_ms(self) -> float:
        if self._deadline is None:
            return _PARENT_CHECK_S * 1000
        return max(self._deadline - time.monotonic(), 0.0) * 1000

    def _reap(self) -> bool:
        """Collect the dead; False once there is neither child nor orphan."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._member_ended(os.waitstatus_to_exitcode(status))

    def _member_ended(self, code: int) -> None:
        self._code = code
        self._report({"code": code})
        _signal_all(_descendants(), signal.SIGTERM)
        self._set_deadline(_LEFTOVER_GRACE_S)

    def _obey(self, data: bytes) -> bool:
        if not data:
            if not self._outlives:
                self._set_deadline(0.0)
            return False
        self._orders += data
        self._obey_whole_lines()
        return True

    def _obey_whole_lines(self) -> None:
        *lines, self._orders = self._orders.split(b"\n")
        for line in lines:
            self._ask_to_stop(grace_s=float(json.loads(line)["stop"]))

    def _check_starter(self) -> None:
        # A process forked by the starter may hold our stdin open after its death; its pid does not lie.
        if not self._outlives and os.getppid() != self._starter:
            self._set_deadline(0.0)

    def _ask_to_stop(self, *, grace_s: float) -> None:
        """SIGTERM to the member alone: it ends its own helpers in order, and what it leaves is ended after it."""
        if self._code is None:
            _signal_all([self._pid], signal.SIGTERM)
        self._set_deadline(grace_s)

    def _set_deadline(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _report(self, news: dict[str, int]) -> None:
        if self._outlives:
            _write_state(self._request, self._pid, self._code)
        if self._is_attended:
            try:
                os.write(2, f"{MARK}{self._request['token']}{json.dumps(news)}\n".encode())
            except OSError:
                self._is_attended = False


def _start_member(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _become_member(request)
    except OSError as error:
        what = error.filename or request["argv"][0]
        os.write(2, f"trek: error: cannot start {what!r}: {error.strerror}.\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)


def _become_member(request: dict[str, Any]) -> None:
    agent = os.getppid()
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(126)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would hand that on
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if request.get("log_path"):
        log = os.open(request["log_path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
    if request["cwd"]:
        os.chdir(request["cwd"])
    env = _environment(request)
    os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 - this is what it is for


def _environment(request: dict[str, Any]) -> dict[str, str]:
    env = {**os.environ, **request["env"]} if request["inherit_env"] else dict(request["env"])
    threads = request["num_threads"]
    if threads is None and request["local_size"] > 1:
        threads = max(len(os.sched_getaffinity(0)) // request["local_size"], 1)
    if threads is not None:
        env.setdefault("OMP_NUM_THREADS", str(threads))
    return env


def _write_state(request: dict[str, Any], pid: int, code: int | None) -> None:
    """What a starter that comes back needs: who the member is, and how it ended."""
    path = request["state_path"]
    own = os.getpid()
    state = {
        **request["state"],
        "pid": pid,
        "start_time": start_time(pid),
        "agent_pid": own,
        "agent_start_time": start_time(own),
        "code": code,
    }
    with open(f"{path}.tmp", "w") as file:  # noqa: PTH123 - pathlib would double the start time
        json.dump(state, file)
    os.replace(f"{path}.tmp", path)  # noqa: PTH105


def start_time(pid: int) -> int | None:
    """When process `pid` began, in the kernel's ticks; with the pid it names one process for good. None: not alive."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else None


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and (fields := _stat_fields(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    level = children.get(os.getpid(), [])
    while level:
        found += level
        level = [grandchild for child in level for grandchild in children.get(child, [])]
    return found


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; the name before it may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def main() -> None:
    """Read the request, run it."""
    received = b""
    while b"\n" not in received:
        part = os.read(0, 65536)
        if not part:
            sys.exit(126)
        received += part
    line, _, orders = received.partition(b"\n")
    Agent(json.loads(line), orders=orders).run()


if __name__ == "__main__":
    main()

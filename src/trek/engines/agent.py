"""The agent: a small process beside every member of a gang, here or elsewhere, that owns what the member starts.

It reads one request (JSON, one line) from stdin, runs it in a session of its own, and reports pid, exit and the files
that the member left on stderr, in lines that carry the request's token. Later lines on stdin are orders; the end of
stdin, or of the starter, means that everything is killed, unless the request asks to outlive it. As a subreaper it
inherits orphans, so even what a member daemonised is found and ended. Values of the user travel through stdin, never
through a shell or a command line.

Only the standard library, and as little of it as can be: it runs on machines and at moments where speed counts. It must
stay single-threaded, which makes fork safe and keeps the parent-death signal of its child meaningful.
"""

from __future__ import annotations

import binascii
import ctypes
import errno
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

MARK = "\x1e"
"""Opens a report on stderr; the request's token follows."""

MEMBER_DIR = "TREK_MEMBER_DIR"
"""The variable that names a member's folder to it."""

NO_SHARED_DISK = "TREK_NO_SHARED_DISK"
"""Set to 1 for a member on a machine that does not have the files of the starter."""

OUTCOME, ASKED, ANSWER = "outcome.json", "asked", "answer.json"
"""Files in a member's folder: see `trek.engines.member_folder`."""

ADDRESSES = "addresses"
"""A file there, with a line `role=host:port,…` for each role whose members an Engine has moved."""

MAX_FILE_BYTES = 64 << 20
_PART_BYTES = 2048
"""A report is written at once if it is shorter than a page, whoever else writes to stderr."""

THREADS, SHARE = "OMP_NUM_THREADS", "TREK_NUM_THREADS"
"""How many threads a process may use; both variables are equal where Trek and not the user decided it."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 1.0
_ANSWER_S = 10.0
_ANSWER_POLL_S = 0.02


class Agent:
    """Runs one request to its end. `become` makes the forked process the member, and does not return."""

    def __init__(
        self,
        request: dict[str, Any],
        *,
        orders: bytes = b"",
        starter_fd: int | None,
        become: Callable[[dict[str, Any], dict[str, str]], None],
    ) -> None:
        self._request = request
        self._orders = orders
        self._outlives = bool(request.get("state_path"))
        self._starter_fd = starter_fd
        self._deadline: float | None = None
        self._answer_until: float | None = None
        self._code: int | None = None
        self._is_attended = True
        become_subreaper()
        self._folder = _make_folder(request)
        env = _environment(request, folder=self._folder)
        self._devices = _devices(env, request)
        self._pid = _start_member(request, env, become=become)
        self._listen_to_signals()
        self._report({"pid": self._pid, "devices": self._devices})

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
        """Watch the member, follow orders, and return once no process that it started is left."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(0, select.POLLIN)
        # A process forked by the starter may hold our stdin open after its death; its pidfd is reliable.
        if self._starter_fd is not None and not self._outlives:
            poll.register(self._starter_fd, select.POLLIN)
        self._obey_whole_lines()
        while self._reap():
            ready = {fd for fd, _ in poll.poll(self._wait_ms())}
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready and not self._obey(os.read(0, 65536)):
                poll.unregister(0)
            if self._starter_fd in ready:
                poll.unregister(self._starter_fd)
                self._set_deadline(0.0)
            self._look_for_answer()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                signal_all(descendants(), signal.SIGKILL)
                self._deadline = time.monotonic() + 0.05
        if not self._request["keeps_folder"]:
            _remove_folder(self._folder)
        self._report({"done": True})

    def _wait_ms(self) -> float | None:
        if self._answer_until is not None:
            return _ANSWER_POLL_S * 1000
        if self._deadline is None:
            return None
        return max(self._deadline - time.monotonic(), 0.0) * 1000

    def _reap(self) -> bool:
        """Reap ended processes; False once there is neither a child nor an orphan."""
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
        self._send_files()
        self._report({"code": code})
        signal_all(descendants(), signal.SIGTERM)
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
            order = json.loads(line)
            if "stop" in order:
                self._ask_to_stop(grace_s=float(order["stop"]))
            elif "write" in order:
                self._give_file(order["write"], binascii.a2b_base64(order["data"]))
            else:
                self._ask_member()

    def _give_file(self, name: str, data: bytes) -> None:
        self._request["given"] = [*self._request["given"], name]
        try:
            write_file(self._folder, name, data)
        except OSError as error:  # the member put something else there, or the disk is full
            os.write(2, f"trek: error: {name!r} could not be given to a member: {error.strerror}.\n".encode())

    def _ask_member(self) -> None:
        _remove_file(f"{self._folder}/{ANSWER}")
        try:
            os.close(os.open(f"{self._folder}/{ASKED}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        except OSError:
            return  # the member put something else there
        self._answer_until = time.monotonic() + _ANSWER_S

    def _look_for_answer(self) -> None:
        if self._answer_until is None:
            return
        if self._send_file(ANSWER) or time.monotonic() >= self._answer_until:
            self._answer_until = None

    def _send_files(self) -> None:
        """What the member left, to a starter that has no other way to it."""
        if self._request["keeps_folder"]:
            return
        for name in sorted(os.listdir(self._folder)):  # noqa: PTH208
            is_own = name not in self._request["given"] and name not in (ASKED, ANSWER) and not name.startswith(".")
            if is_own:
                self._send_file(name)

    def _send_file(self, name: str) -> bool:
        """Whether there is such a file."""
        data = _read_plain(f"{self._folder}/{name}")
        if data is None:
            return False
        if len(data) > MAX_FILE_BYTES:
            os.write(2, f"trek: error: {name!r} is larger than {MAX_FILE_BYTES} bytes and is not returned.\n".encode())
            return True
        for start in range(0, max(len(data), 1), _PART_BYTES):
            part = binascii.b2a_base64(data[start : start + _PART_BYTES], newline=False).decode()
            self._report({"file": name, "part": part, "is_first": start == 0})
        return True

    def _ask_to_stop(self, *, grace_s: float) -> None:
        """SIGTERM to the member alone: it ends its own helpers in order, and what it leaves is ended after it."""
        if self._code is None:
            signal_all([self._pid], signal.SIGTERM)
        self._set_deadline(grace_s)

    def _set_deadline(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _report(self, news: dict[str, Any]) -> None:
        if self._outlives:
            _write_state({**self._request["state"], "devices": self._devices}, self._request, self._pid, self._code)
        if self._is_attended:
            try:
                os.write(2, f"{MARK}{self._request['token']}{json.dumps(news)}\n".encode())
            except OSError:
                self._is_attended = False


def _make_folder(request: dict[str, Any]) -> str:
    """The member's folder; on another machine it is made here, with the files that came along."""
    folder: str | None = request["folder"]
    if folder is not None:
        return folder
    folder = f"{os.environ.get('TMPDIR') or '/tmp'}/trek-{request['token']}"  # noqa: S108 - made for its owner alone
    os.mkdir(folder, 0o700)  # noqa: PTH102
    for name, data in request["files"].items():
        with open(f"{folder}/{name}", "wb") as file:  # noqa: PTH123
            file.write(binascii.a2b_base64(data))
    return folder


def _read_plain(path: str) -> bytes | None:
    """As `trek.system.plain_files`, which cannot be imported here: no more of a regular file than is returned."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def write_file(folder: str, name: str, data: bytes) -> None:
    """Put a file into a member's folder, whole or not at all.

    It belongs to the owner of the folder, who may have put links there: root must neither follow them nor keep the file
    to itself.
    """
    partial = f"{folder}/.{name}.{os.urandom(8).hex()}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if os.geteuid() == 0:
                owner = os.stat(folder)  # noqa: PTH116
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.replace(partial, f"{folder}/{name}")  # noqa: PTH105
    except OSError:
        _remove_file(partial)
        raise


def _start_member(
    request: dict[str, Any], env: dict[str, str], *, become: Callable[[dict[str, Any], dict[str, str]], None]
) -> int:
    agent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _prepare_member(request, agent=agent)
        become(request, env)
    except OSError as error:
        what = error.filename or request["argv"][0]
        os.write(2, f"trek: error: cannot start {what!r}: {error.strerror}.\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    except Exception as error:  # noqa: BLE001 - a forked process never returns into its agent's code
        os.write(2, f"trek: error: cannot start {request['argv'][0]!r}: {error!r}.\n".encode())
    finally:
        os._exit(126)


def _prepare_member(request: dict[str, Any], *, agent: int) -> None:
    os.setsid()
    end_with_parent(agent)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if request.get("log_path"):
        log = os.open(request["log_path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
    if request.get("user"):
        _become_user(*request["user"])
    if request["cwd"]:
        os.chdir(request["cwd"])


def _become_user(uid: int, gid: int, groups: list[int]) -> None:
    """Give up root's rights for good, before anything of the user's runs."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel clears it when the user changes


def execute(request: dict[str, Any], env: dict[str, str]) -> None:
    """Become the member by running its command line."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 - this is what it is for


def _environment(request: dict[str, Any], *, folder: str) -> dict[str, str]:
    env = {**os.environ, **request["env"]} if request["inherit_env"] else dict(request["env"])
    env[MEMBER_DIR] = folder
    share = _share(env)
    is_chosen = THREADS in env and share is None
    threads = request["num_threads"]
    if threads is None and (request["local_size"] > 1 or share is not None):
        threads = max((share or len(os.sched_getaffinity(0))) // request["local_size"], 1)
    if threads is not None and not is_chosen:
        env[THREADS] = env[SHARE] = str(threads)
    return env


def _share(env: dict[str, str]) -> int | None:
    """The cores that Trek gave to the process that starts this gang; None if it has them all, or the user decides."""
    share = env.get(SHARE, "")
    return int(share) if share.isdigit() and share == env.get(THREADS) else None


def _devices(env: dict[str, str], request: dict[str, Any]) -> list[str]:
    """What the member computes on, as `trek.world.devices` will choose it."""
    visible = visible_gpus(env)
    if not visible or not request["uses_gpu"] or env.get("TREK_DEVICE") == "cpu":
        return ["cpu"]
    return [f"cuda:{visible[request['local_rank'] % len(visible)]}"]


def visible_gpus(env: dict[str, str]) -> list[str]:
    """The NVIDIA GPUs that a process with this environment may use, without loading torch to ask."""
    names = (name[6:] for name in os.listdir("/dev") if name.startswith("nvidia"))  # noqa: PTH208
    present = sorted((name for name in names if name.isdigit()), key=int)
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return present
    named = [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    return named[: len(present)]


def _write_state(known: dict[str, Any], request: dict[str, Any], pid: int, code: int | None) -> None:
    """What a restarted starter needs: the member's identity, and how it ended."""
    path = request["state_path"]
    own = os.getpid()
    state = {
        **known,
        "pid": pid,
        "start_time": start_time(pid),
        "agent_pid": own,
        "agent_start_time": start_time(own),
        "code": code,
    }
    private = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(private, "w") as file:
        json.dump(state, file)
    os.replace(f"{path}.tmp", path)  # noqa: PTH105


def _remove_folder(folder: str) -> None:
    try:
        for _, folders, files, parent in os.fwalk(folder, topdown=False):  # by descriptors: no link is followed
            for name in files:
                _remove_file(name, folder=parent)
            for name in folders:
                os.rmdir(name, dir_fd=parent)
        os.rmdir(folder)  # noqa: PTH106
    except OSError:
        return  # another process has removed it, or still writes there


def _remove_file(path: str, *, folder: int | None = None) -> None:
    try:
        os.unlink(path, dir_fd=folder)
    except FileNotFoundError:
        return


def start_time(pid: int) -> int | None:
    """When process `pid` began, in the kernel's ticks; with the pid, unique to one process. None: not alive."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else None


def descendants() -> list[int]:
    """Every process that this one, its children or their orphans started."""
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


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to those of `pids` that still run."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def become_subreaper() -> None:
    """Make orphans of this process's descendants its own children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it ends; at once, if `parent` has ended before."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(126)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def main(
    *,
    starter_fd: int | None = None,
    become: Callable[[dict[str, Any], dict[str, str]], None] = execute,
) -> None:
    """Read the request from stdin and run it. `starter_fd` is a pidfd of the starter."""
    received = [b""]
    while b"\n" not in received[-1]:
        received.append(os.read(0, 65536))
        if not received[-1]:
            sys.exit(126)
    line, _, orders = b"".join(received).partition(b"\n")
    Agent(json.loads(line), orders=orders, starter_fd=starter_fd, become=become).run()


if __name__ == "__main__":
    main(starter_fd=os.pidfd_open(os.getppid()))

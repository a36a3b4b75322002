"""The warm parent: `python -m trek.engines.warm.parent LISTENER FOLDER IDLE_S`. Imports on demand, forks agents.

Accepts connections of its own user alone. A request names modules of Trek and torch to import, and brings the agent's
stdin, stdout and stderr and a pidfd of the starter; the answer brings a pidfd of the agent. The member's command and
environment never come here: the agent reads them from its stdin.

It must have one thread and no CUDA context when it forks; otherwise it writes down which import is to blame, and ends.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from trek.engines import agent
from trek.engines.warm.child import become_module, close_fds, reset_signals, show_title
from trek.engines.warm.protocol import MAX_REQUEST_BYTES, NUM_FDS, READY, SOCKET, is_own_user
from trek.engines.warm.refusals import add_refusal

_RECEIVE_S = 1.0
_LOOK_S = 2.0
"""How often it checks that its folder still exists."""


class Parent:
    """Serves one folder's socket."""

    def __init__(self, listener: socket.socket, *, folder: Path, idle_s: float) -> None:
        self._listener = listener
        self._folder = folder
        self._idle_s = idle_s
        self._imported: list[str] = []
        self._library_fds: set[int] = set()
        self._socket_file = (folder / SOCKET).stat()
        self._children: set[int] = set()
        self._last_use_s = time.monotonic()

    def serve(self) -> None:
        """Until it is idle for too long, its folder is gone, or it cannot serve."""
        wake, wake_write = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while self._is_needed():
            ready = {fd for fd, _ in poll.poll(_LOOK_S * 1000)}
            if wake in ready:
                os.read(wake, 4096)
            self._reap()
            if self._listener.fileno() in ready:
                self._accept()

    def _is_needed(self) -> bool:
        is_idle = not self._children and time.monotonic() - self._last_use_s >= self._idle_s
        return self._owns_folder() and not is_idle

    def _owns_folder(self) -> bool:
        try:
            return os.path.samestat((self._folder / SOCKET).stat(), self._socket_file)
        except OSError:
            return False

    def remove_folder(self) -> None:
        """Remove the folder while still listening, so that no starter recreates it meanwhile."""
        if self._owns_folder():
            old = self._folder.with_name(f".{self._folder.name}.{os.getpid()}")
            self._folder.rename(old)
            shutil.rmtree(old, ignore_errors=True)

    def _reap(self) -> None:
        while self._children:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            self._last_use_s = time.monotonic()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_RECEIVE_S)
            fds: list[int] = []
            try:
                if not is_own_user(connection):
                    return
                data, fds, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, NUM_FDS)
                if len(fds) == NUM_FDS:
                    self._answer(connection, json.loads(data), fds)
            except (OSError, ValueError):
                traceback.print_exc()  # the starter has gone; the log is in the folder
            finally:
                for fd in fds:
                    os.close(fd)

    def _answer(self, connection: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
        self._import(request["imports"])
        self._last_use_s = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _become_agent(fds, inherited=request, library_fds=self._library_fds)
        self._children.add(pid)
        pidfd = os.pidfd_open(pid)
        try:
            socket.send_fds(connection, [json.dumps({"pid": pid}).encode()], [pidfd])
        finally:
            os.close(pidfd)

    def _import(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._imported]
        if not missing:
            return
        before = _open_fds()
        for name in missing:
            self._import_one(name)
        self._library_fds |= _open_fds() - before
        self._imported += missing
        _keep_finalizers_from_children()
        # Frozen objects are not looked through by the collector, so their pages stay shared with the children.
        gc.collect()
        gc.freeze()
        partial = self._folder / f".{READY}"
        partial.write_text(json.dumps(self._imported))
        partial.replace(self._folder / READY)

    def _import_one(self, name: str) -> None:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - what a fresh process would meet as well, and report
            self._refuse(name, reason=f"{name} cannot be imported: {error}")
        if (reason := _why_not_fork()) != "":
            self._refuse(name, reason=f"after importing {name}: {reason}")

    def _refuse(self, name: str, *, reason: str) -> NoReturn:
        add_refusal(self._folder, name, reason=reason)
        sys.exit(f"trek: warm start refused: {reason}")


def _become_agent(fds: Sequence[int], *, inherited: dict[str, Any], library_fds: set[int]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        reset_signals()
        show_title([sys.executable, agent.__file__])
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        starter_fd = fds[3]
        close_fds(keep={0, 1, 2, starter_fd, *library_fds})
        become = functools.partial(become_module, inherited=inherited, library_fds=library_fds)
        agent.main(starter_fd=starter_fd, become=become)
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's loop
        traceback.print_exc()
    finally:
        os._exit(code)


def _open_fds() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208


def _keep_finalizers_from_children() -> None:
    """Drop the libraries' exit handlers: they clean up what is the parent's, and torch's take 0.1 s a member."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False


def _why_not_fork() -> str:
    """Why this process must not fork members; empty if it may."""
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    if len(threads) > 1:
        names = sorted(Path(f"/proc/self/task/{one}/comm").read_text().strip() for one in threads)
        return f"there are {len(threads)} threads ({', '.join(names)})"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised"
    return ""


def main(listener_fd: int, folder: Path, idle_s: float) -> None:
    """Serve, then remove the folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.chdir("/")
    parent = Parent(socket.socket(fileno=listener_fd), folder=folder, idle_s=idle_s)
    try:
        parent.serve()
    finally:
        parent.remove_folder()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))

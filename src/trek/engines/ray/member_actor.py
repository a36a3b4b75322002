"""MemberActor: what Ray runs on the machine of one member: it owns the member's agent, its folder and its log there.

The agent dies with this process, and this process with its raylet, so nothing trains on where Ray counts a node as
dead. Calls come from the gang's watcher (`ray_member`); `news` is the one that waits.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trek._version import __version__
from trek.engines import agent
from trek.engines.agent_process import AgentProcess, SpawnedAgent
from trek.engines.free_port import find_free_port
from trek.engines.hosts import AssignedRank
from trek.engines.member import AgentMember
from trek.engines.member_folder import MemberFolder
from trek.engines.warm.rules import why_not_warm
from trek.engines.warm.warm_agent import WarmParents, warm_folder

FOLDER_PREFIX = "trek-ray-"
MAX_NEWS_BYTES = 1 << 20
MAX_WAIT_S = 30.0
"""A call that waits returns after this long with nothing new, so that no call is held for ever."""
_POLL_S = 0.05
_RAYS_OWN = ("RAY_", "PYTHONBREAKPOINT", agent.THREADS, agent.SHARE)
"""Variables of a Ray worker that its members must not inherit: they are not Ray workers."""


class MemberActor:
    """One member on its machine. Several threads call it."""

    def __init__(self) -> None:
        _end_with(os.getppid())
        _remove_stale_folders()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
        self._changed = threading.Condition()
        self._member: AgentMember | None = None
        self._is_requested = False
        self._given: dict[str, bytes] = {}
        self._has_log = False
        self._is_over = False
        """Nothing of the member is left, and its pipes are closed."""
        self._lines: deque[tuple[str, str]] = deque()
        self._num_taken = 0
        """How many lines the watcher has."""

    def describe(self) -> dict[str, Any]:
        """Where this is, and what runs here."""
        import ray

        return {
            "version": __version__,
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),  # type: ignore[no-untyped-call]
            "node": ray.get_runtime_context().get_node_id(),
            "port": find_free_port(),
            "is_started": self._member is not None,
        }

    def start(self, request: dict[str, Any], files: Mapping[str, bytes]) -> None:
        """Start the member. `request` is that of the agent, without what only this machine can say.

        A second request is ignored: it is that of a starter that attached, while that of one that died was under way.
        """
        own = self._folder / "member"
        with self._changed:
            if self._is_requested:
                return
            self._is_requested = True
            own.mkdir(mode=0o700)
            for name, data in {**files, **self._given}.items():
                (own / name).write_bytes(data)
        request = {**request, "folder": str(own), "keeps_folder": True, "inherit_env": False}
        request["env"] = _merged(_own_environment(), request["env"])
        if request["argv"][0] == request["python"]:
            request["argv"] = [sys.executable, *request["argv"][1:]]
        if request.get("has_log"):
            request["log_path"] = str(self._folder / "log")
        request["cwd"] = self._working_folder(request, cwd=request["cwd"])
        with self._changed:
            self._has_log = bool(request.get("has_log"))
            self._member = self._open_member(request)
            self._changed.notify_all()
        threading.Thread(target=self._watch, args=(self._member,), name="trek-member", daemon=True).start()

    def _working_folder(self, request: dict[str, Any], *, cwd: str) -> str:
        """The folder that came along, or that of the starter where it exists here, or an empty one.

        Variables that name the starter's folder then name this one, and the member is told that it shares no disk.
        """
        work = self._folder / "work"
        archive = request.pop("archive")
        if archive:
            with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                packed.extractall(work, filter="data")
            return str(work)
        if Path(cwd).is_dir():
            return cwd
        work.mkdir()
        moved = {name: f"{work}{value[len(cwd) :]}" for name, value in request["env"].items() if _is_in(value, cwd)}
        request["env"] |= {**moved, agent.NO_SHARED_DISK: "1"}
        return str(work)

    def _open_member(self, request: dict[str, Any]) -> AgentMember:
        command = [sys.executable, "-I", "-S", agent.__file__]

        def spawn() -> AgentProcess:
            return SpawnedAgent(command)

        imports = request.pop("imports")
        assigned = AssignedRank(**request.pop("assigned"))
        warm = None
        if not why_not_warm(request["argv"], env=request["env"], imports=imports, executable=sys.executable):
            parents = WarmParents(warm_folder(request["env"]))
            warm = parents.open_agent([*imports, request["argv"][2]], env=request["env"])
        member = AgentMember(assigned, request=request, spawn=spawn, agent=warm)
        member.is_heard = False
        return member

    def _watch(self, member: AgentMember) -> None:
        while not (member.is_gone and member.code is not None):
            ready = select.select(list(member.fds), [], [], _POLL_S)[0]
            with self._changed:
                before = (member.pid, member.code)
                for line in member.pump():
                    if not self._has_log:
                        self._lines.append((line.stream, line.text))
                if ready or self._lines or before != (member.pid, member.code):
                    self._changed.notify_all()
            self._rest_while_full()
        with self._changed:
            member.close()
            self._is_over = True
            self._changed.notify_all()

    def _rest_while_full(self) -> None:
        """A member that writes faster than its watcher reads has to wait, as at a pipe."""
        with self._changed:
            self._changed.wait_for(lambda: sum(len(text) for _, text in self._lines) < MAX_NEWS_BYTES)

    def news(self, position: int, known: Mapping[str, Any]) -> dict[str, Any]:
        """What is new since `position`, in lines or in bytes of the log; waits until there is something.

        `known` is the state that the watcher has. How the member ended is told after everything that it wrote.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._member is not None, MAX_WAIT_S)
            while self._lines and self._num_taken < position:
                self._lines.popleft()
                self._num_taken += 1
            self._changed.notify_all()
            deadline = MAX_WAIT_S
            while not (found := self._new(position, known)) and deadline > 0:
                self._changed.wait(_POLL_S)
                deadline -= _POLL_S
            return found or {"state": dict(known)}

    def _new(self, position: int, known: Mapping[str, Any]) -> dict[str, Any]:
        member = self._member
        if member is None:
            return {}
        written = self._written(position)
        # Under the lock, so what it wrote before its end is read by now, unless that is too much for one answer.
        has_all = not self._has_log or len(written) < MAX_NEWS_BYTES
        state = {
            "pid": member.pid,
            "devices": list(member.devices),
            "code": member.code if has_all else known["code"],
            "is_gone": self._is_over and known["code"] is not None,
        }
        if not written and state == known:
            return {}
        found = {"state": state, "written": written}
        if state["code"] is not None and known["code"] is None:
            found |= {"last_lines": list(member.exit().last_lines), **self._left()}
        return found

    def _left(self) -> dict[str, Any]:
        """What the member left: small files as they are, in the answer that tells of its end, the others by name."""
        own = MemberFolder(self._folder / "member")
        files: dict[str, bytes] = {}
        large: list[str] = []
        for name in self._left_files():
            content = own.read(name, size=MAX_NEWS_BYTES)
            if content is None or len(content) + sum(map(len, files.values())) >= MAX_NEWS_BYTES:
                large.append(name)
            else:
                files[name] = content
        return {"files": files, "large_files": large}

    def _written(self, position: int) -> Any:
        if not self._has_log:
            return list(self._lines)
        return _read_part(self._folder / "log", position, MAX_NEWS_BYTES)

    def stop(self, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace; a call to start it may be under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._member is not None, MAX_WAIT_S)
            if self._member is not None and not self._is_over:
                self._member.ask_to_stop(grace_s=grace_s)

    def ask(self) -> None:
        """Request an answer of the member."""
        with self._changed:
            if self._member is not None and not self._is_over:
                self._member.ask()

    def _left_files(self) -> list[str]:
        own = self._folder / "member"
        return [one.name for one in own.iterdir() if one.is_file() and not one.is_symlink() and one.name[0] != "."]

    def read_file(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """A part of a file in the member's folder."""
        return MemberFolder(self._folder / "member").read(name, start=start, size=size)

    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into the member's folder, or keep it for a member whose start is still under way."""
        with self._changed:
            self._given[name] = data
            if self._is_requested:
                with contextlib.suppress(FileNotFoundError):  # it was closed
                    MemberFolder(self._folder / "member").write(name, data)

    def close(self) -> None:
        """Remove what was kept; the caller ends this process then."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _end_with(parent: int) -> None:
    """End this process as soon as its raylet has ended, however that was: Ray itself may take seconds."""
    descriptor = os.pidfd_open(parent)

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(1)

    threading.Thread(target=wait, name="trek-raylet-watch", daemon=True).start()


def _remove_stale_folders() -> None:
    """Those of actors that were killed before they could remove their own."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _own_environment() -> dict[str, str]:
    """Of this machine, without what Ray set for its own worker."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_RAYS_OWN)}


def _merged(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What was given wins, but modules are found where Ray put those that were sent here first of all."""
    paths = [env["PYTHONPATH"] for env in (own, given) if env.get("PYTHONPATH")]
    return {**own, **given, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _is_in(value: str, folder: str) -> bool:
    return value == folder or value.startswith(f"{folder}/")


def _read_part(path: Path, position: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(size)
    except FileNotFoundError:
        return b""

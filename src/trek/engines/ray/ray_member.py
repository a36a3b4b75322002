"""RayMember: one process of a gang on Ray, seen through the actor on its machine.

A call that waits for news is always under way, so the end of the actor or of its node is noticed when Ray notices it.
What the member writes comes home as it is written, and what it left when it has ended, so nothing is read from its
machine later.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from trek._version import __version__
from trek.engines.base import OutputLine
from trek.engines.hosts import AssignedRank
from trek.engines.lines import LineBuffer, Tail
from trek.engines.member import Member
from trek.engines.member_folder import MemberFolder

FETCH_BYTES = 8 << 20
CALL_TIMEOUT_S = 30.0
_MAX_UNAVAILABLE = 2
"""How many calls in a row may find no connection: Ray gives up on each after two seconds."""
Request = Mapping[str, Any]


class RayMember(Member):
    """See the module. `prepare` gives the request to start it, once its place is known."""

    hint = "Look at `ray status` and at the memory of the node."

    def __init__(
        self,
        assigned: AssignedRank,
        *,
        actor: Any,
        prepare: Callable[[RayMember, Mapping[str, Any]], tuple[Request, Any]] | None,
        release: Callable[[RayMember], None],
        home: Path | None,
        log_start: int = 0,
        is_placed: bool = True,
    ) -> None:
        """`home` is the stem of the member's files in the gang's `output_dir`. Without `prepare`, it runs already."""
        super().__init__(assigned)
        self._actor = actor
        self._prepare = prepare
        self._release = release
        self._home = home
        self._log_start = log_start
        self._files: dict[str, bytes] = {}
        self._state: dict[str, Any] = {"pid": None, "devices": [], "code": None, "is_gone": False}
        self._position = 0
        self._num_unavailable = 0
        self._buffers = {name: LineBuffer() for name in ("stdout", "stderr", "log")}
        self._is_gone = self._is_let_go = self._is_lost = False
        self._arrived: SimpleQueue[tuple[str, Future[Any]]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.is_placed = is_placed
        self._is_requested = prepare is None
        if home is not None:
            self.log_path = home.with_suffix(".log")
            self._log: Tail | None = Tail(self.log_path)
            self._position = max(_size(self.log_path) - log_start, 0)
        else:
            self._log = None
        if prepare is None:
            self._call("news", self._position, self._state)
        else:
            self._call("describe")

    # -- what the gang sees

    @property
    def fds(self) -> set[int]:
        """Becomes readable when a call was answered."""
        return {self._wake}

    @property
    def is_polled(self) -> bool:
        """Every answer announces itself."""
        return False

    def pump(self) -> Iterator[OutputLine]:
        """Take the answers of calls."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while not self._arrived.empty():
            method, future = self._arrived.get()
            try:
                yield from self._take(method, future)
            except OSError as error:  # a full disk, say: the gang goes on with the others
                yield from self._lose(f"what the member left cannot be kept here: {error}", code=-signal.SIGKILL)

    def _take(self, method: str, future: Future[Any]) -> Iterator[OutputLine]:
        error = future.exception()
        if error is None:
            yield from getattr(self, f"_on_{method}")(future.result())
        else:
            yield from self._on_error(method, error)

    def ask_to_stop(self, *, grace_s: float) -> None:
        """Through the actor; one that has no place yet is not started any more."""
        self.is_unwanted = True
        if not self._is_requested:
            self.kill()
            return
        with contextlib.suppress(RayError):
            self._actor.stop.remote(grace_s)

    def kill(self) -> None:
        """End the actor; the agent and the member die with it."""
        if ray.is_initialized():  # or Ray would connect anew, after a program has disconnected
            with contextlib.suppress(RayError):
                ray.kill(self._actor, no_restart=True)

    @property
    def is_gone(self) -> bool:
        """Whether its agent has ended, or its machine is lost."""
        return self._is_gone

    def ask(self) -> None:
        """Through the actor."""
        with contextlib.suppress(RayError):
            ray.get(self._actor.ask.remote(), timeout=CALL_TIMEOUT_S)

    def read_file(self, name: str, *, start: int = 0, size: int | None = None) -> bytes | None:
        """What came home, once it has ended; from its machine before."""
        if self.code is not None:
            if self._home is not None:
                return MemberFolder(self._home).read(name, start=start, size=size)
            data = self._files.get(name)
            return None if data is None else data[start : None if size is None else start + size]
        try:
            found: bytes | None = ray.get(self._actor.read_file.remote(name, start, size), timeout=CALL_TIMEOUT_S)
        except RayError:
            return None
        return found

    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into its folder, without waiting for it."""
        with contextlib.suppress(RayError):
            self._actor.write_file.remote(name, data)

    def close(self) -> None:
        """End the actor, which removes the files on its machine."""
        if ray.is_initialized() and not self._is_lost:  # a call to a node that is lost waits until Ray knows of it
            with contextlib.suppress(RayError):
                ray.get(self._actor.close.remote(), timeout=CALL_TIMEOUT_S)
        self.kill()
        self._release(self)
        self.let_go()

    def let_go(self) -> None:
        """Take no more answers."""
        self._is_let_go = True
        os.close(self._wake)

    # -- calls and their answers

    def _call(self, method: str, *args: Any) -> None:
        future = getattr(self._actor, method).remote(*args).future()
        future.add_done_callback(partial(self._arrive, method))

    def _arrive(self, method: str, future: Future[Any]) -> None:
        """On a thread of Ray's."""
        self._arrived.put((method, future))
        with contextlib.suppress(OSError):  # the gang has let go meanwhile
            if not self._is_let_go:
                os.eventfd_write(self._wake, 1)

    def _on_describe(self, place: Mapping[str, Any]) -> Iterator[OutputLine]:
        if place["version"] != __version__:
            return self._lose(version_problem(place), code=2)
        assert self._prepare is not None
        request, files = self._prepare(self, place)
        self.is_placed = self._is_requested = True
        self._call("start", request, files)
        self._call("news", self._position, self._state)
        return iter(())

    def _on_start(self, _: None) -> Iterator[OutputLine]:
        return iter(())

    def _on_news(self, news: Mapping[str, Any]) -> Iterator[OutputLine]:
        self._num_unavailable = 0
        state = self._state = news["state"]
        self.pid, self.devices = state["pid"], tuple(state["devices"])
        yield from self._take_written(news.get("written") or ())
        if state["code"] is not None and self.code is None:
            self._last_lines.extend(news.get("last_lines", ()))
            self._take_files(news.get("files", {}), news.get("large_files", ()))
            self._end(state["code"])
            yield from self._flush()
        self._is_gone = state["is_gone"]
        if not self._is_gone:
            self._call("news", self._position, state)

    def _take_written(self, written: Any) -> Iterator[OutputLine]:
        self._position += len(written)
        if self.log_path is None:
            for stream, text in written:
                yield OutputLine(self.rank, stream, text, self.role)
            return
        if written:
            with os.fdopen(os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(written)
        yield from self._flush()

    def _flush(self) -> Iterator[OutputLine]:
        if self._log is not None:
            yield from self._keep(self._keep_last(self._follow(self._log, self._buffers["log"])), "stdout")

    def _on_error(self, method: str, error: BaseException) -> Iterator[OutputLine]:
        """A connection may be back at the next call; anything else is the end of the actor."""
        if method == "news" and isinstance(error, ActorUnavailableError):
            self._num_unavailable += 1
            if self._num_unavailable < _MAX_UNAVAILABLE:
                self._call("news", self._position, self._state)
                return
        if method != "start" or self.code is None:
            yield from self._lose(_reason(error), code=-signal.SIGKILL)

    def _lose(self, reason: str, *, code: int) -> Iterator[OutputLine]:
        """The actor has ended, or its node; what the member left there is lost."""
        self.kill()
        self._is_lost = True
        if self.code is None:
            self._last_lines.append(reason)
            self.is_unreached = not self.is_unwanted
            self._end(code)
            yield from self._flush()
        self._is_gone = True

    def _end(self, code: int) -> None:
        if self._home is not None:
            with contextlib.suppress(OSError):  # whoever attaches to the gang finds it lost
                write_end(
                    self._home,
                    role=self.role,
                    rank=self.rank,
                    host=self.host,
                    code=code,
                    pid=self.pid or 0,
                    devices=self.devices,
                )
        self.code = code

    def _take_files(self, files: Mapping[str, bytes], large: Sequence[str]) -> None:
        """Keep what the member left: small files came with the news of its end, so that ends cost no further call."""
        for name, content in files.items():
            self._keep_file(name, content)
        with contextlib.suppress(RayError):
            for name in large:
                self._fetch(name)

    def _fetch(self, name: str) -> None:
        start, parts = 0, []
        while part := ray.get(self._actor.read_file.remote(name, start, FETCH_BYTES), timeout=CALL_TIMEOUT_S):
            parts.append(part)
            start += len(part)
            if len(part) < FETCH_BYTES:
                break
        self._keep_file(name, b"".join(parts))

    def _keep_file(self, name: str, content: bytes) -> None:
        if self._home is None:
            self._files[name] = content
            return
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        MemberFolder(self._home).write(name, content)


def write_end(
    home: Path, *, role: str, rank: int, host: str, code: int, pid: int = 0, devices: Sequence[str] = ()
) -> None:
    """Write how a member ended, as the agent of a local one does: who attaches to its gang reads it."""
    state = {
        "role": role,
        "rank": rank,
        "host": host,
        "devices": list(devices),
        "pid": pid,
        "start_time": None,
        "agent_pid": 0,
        "agent_start_time": None,
        "code": code,
    }
    partial_ = home.with_suffix(".new")
    partial_.write_text(json.dumps(state))
    partial_.replace(home.with_suffix(".json"))


def version_problem(place: Mapping[str, Any]) -> str:
    """What is wrong with a node that has another version of Trek."""
    return (
        f"node {place['host']} ({place['address']}) has Trek {place['version']}, and this process has Trek "
        f"{__version__}. Install the same version on every node, or set the engine's option send_trek."
    )


def _reason(error: BaseException) -> str:
    """What Ray says, in a line."""
    if isinstance(error, RayTaskError):
        return f"the member could not be started: {error.cause!r}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "node has died" in line or "worker" in line.lower() or "killed" in line]
    return f"Ray lost the actor: {(causes or lines or [type(error).__name__])[0]}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

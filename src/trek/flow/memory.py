"""Hand-over in memory: outputs that are files in shared memory while the run lasts, mapped by the steps that use them.

The files of a step whose every taker asked for `handover="memory"` go there and not to disk. They are freed when the
last taker is done. Should this process be killed, a janitor process that holds the other end of a pipe removes them.
Should the janitor be killed with it, the next run of any flow or `trek flow clean` does: the folder of a run that is
alive is locked, and a lock ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trek.flow import janitor
from trek.flow.graph import FunctionWork, Step

_ROOTS = (Path("/dev/shm"), Path(tempfile.gettempdir()))  # noqa: S108 - where Linux keeps shared memory
_PREFIX = "trek-flow-"
_LOCK = "lock"


class SharedMemory:
    """The outputs of one run that stay in memory. `folder` exists only if some step needs it."""

    def __init__(self, steps: Sequence[Step], *, run: str, params: Mapping[str, Any]) -> None:
        self._takers = takers_in_memory(steps, params=params)
        self._numbers = {giver: number for number, giver in enumerate(self._takers)}
        remove_left_memory()
        self.folder = _root() / f"{_PREFIX}{run}"
        self._janitor = _start_janitor(self.folder) if self._takers else None
        self._lock = _make_locked(self.folder) if self._takers else None

    def holds(self, step: Step) -> bool:
        """Whether the step's outputs live here."""
        return step in self._numbers

    def objects(self, step: Step) -> Path:
        """Where the step's outputs live."""
        return self.folder / "objects" / str(self._numbers[step])

    def release_inputs(self, step: Step) -> None:
        """`step` is done: free the inputs that no other step waits for."""
        for giver in {output.step for output in step.inputs()} & self._takers.keys():
            self._takers[giver].discard(step)
            if not self._takers[giver]:
                del self._takers[giver]
                shutil.rmtree(self.objects(giver), ignore_errors=True)

    def close(self) -> None:
        """Free everything, and end the janitor."""
        if self._janitor is not None:
            self._janitor.communicate(janitor.ENDED_WELL)
            self._janitor = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def takers_in_memory(steps: Sequence[Step], *, params: Mapping[str, Any]) -> dict[Step, set[Step]]:
    """The steps whose outputs are handed over in memory, each with those that take them."""
    takers: dict[Step, set[Step]] = {}
    for step in steps:
        for giver in {output.step for output in step.inputs()}:
            takers.setdefault(giver, set()).add(step)
    return {giver: those for giver, those in takers.items() if _fits(giver, those, params)}


def remove_left_memory() -> int:
    """Remove what killed runs of this user left in shared memory; returns how many bytes."""
    num_bytes = 0
    for folder in _root().glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process is removing it
            if folder.stat().st_uid == os.getuid() and (lock := _try_lock(folder)) is not None:
                num_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
    return num_bytes


def _root() -> Path:
    return next(root for root in _ROOTS if root.is_dir())


def _make_locked(folder: Path) -> int:
    """Make the folder; returns the descriptor that holds its lock."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it was not locked yet, and removed
            if (lock := _try_lock(folder)) is not None and (folder / _LOCK).exists():
                return lock


def _try_lock(folder: Path) -> int | None:
    """The descriptor that holds the folder's lock; None if a run that is alive holds it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _start_janitor(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", janitor.__file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )


def _fits(giver: Step, takers: Iterable[Step], params: Mapping[str, Any]) -> bool:
    return isinstance(giver.work, FunctionWork) and all(
        taker.settings.resolve_handover(params) == "memory" for taker in takers
    )

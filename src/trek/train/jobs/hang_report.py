"""Where the training thread is, for reports about a rank that hangs or that others wait for.

Looks from another thread, so it sees a rank that is stuck inside a collective.
"""

from __future__ import annotations

import sys
import threading
import traceback
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType

import trek
from trek.engines import Gang
from trek.engines.member_folder import MemberFolder


def _torch_folder() -> Path:
    # Found, not imported: the control plane reads outcomes of ranks and has no other use for torch.
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


_OURS = str(Path(trek.__file__).parent)
_TORCH = str(_torch_folder())
_COLLECTIVES = (str(Path(_TORCH) / "distributed"), str(Path(_OURS) / "strategies" / "host_sum.py"))
_UNHURRIED = (
    str(Path(_TORCH) / "_dynamo"),
    str(Path(_TORCH) / "_inductor"),
    str(Path(_OURS) / "train" / "checkpointing"),
)
_POLL_S = 0.1
WAITING = "waiting in"


def describe(stack: traceback.StackSummary) -> str:
    """In a few words: the collective waited in, if any, and the user's own line."""
    collective = collective_of(stack)
    users = [f for f in stack if not f.filename.startswith((_OURS, _TORCH, "<frozen"))]
    own = [f for f in stack if f.filename.startswith(_OURS)]
    line = (users or own or list(stack))[-1]
    place = f"{Path(line.filename).name}:{line.lineno} in {line.name}"
    return f"{WAITING} {collective} ({place})" if collective else f"at {place}"


def collective_of(stack: traceback.StackSummary) -> str:
    """The collective that a thread waits in; "" if it waits in none."""
    return next((frame.name for frame in stack if _is_collective(frame)), "")


def is_unhurried(stack: traceback.StackSummary) -> bool:
    """Whether a thread compiles or writes a checkpoint, which may take its time."""
    return any(frame.filename.startswith(_UNHURRIED) for frame in stack)


def _is_collective(frame: traceback.FrameSummary) -> bool:
    # torch wraps its collectives for logging: the wrapper is not what anyone waits in.
    return frame.filename.startswith(_COLLECTIVES) and not frame.name.startswith("_") and frame.name != "wrapper"


def of_traceback(found: TracebackType | None) -> str:
    """Where an exception came from."""
    return describe(traceback.extract_tb(found)) if found else ""


_error_place = ""


def note_error(found: TracebackType | None) -> None:
    """An exception is being raised: report where it came from, whatever is closed meanwhile."""
    global _error_place
    _error_place = of_traceback(found)


class Lookout:
    """A thread that says where the main thread is, whenever the starter of this process asks through `folder`."""

    def __init__(self, folder: MemberFolder) -> None:
        self._folder = folder
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trek-lookout", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_POLL_S):
            if self._folder.is_asked:
                self._folder.answer({"where": _error_place or describe(main_stack())})


def main_stack() -> traceback.StackSummary:
    """Where the main thread is, from any thread."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    return traceback.extract_stack(frame)


def ask_where(gang: Gang, *, timeout_s: float = 1.0) -> dict[int, str]:
    """Where the ranks that are still alive are, by their own report."""
    return {rank: answer["where"] for rank, answer in gang.ask(timeout_s=timeout_s).items()}

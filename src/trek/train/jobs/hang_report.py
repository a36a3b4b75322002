"""Where the training thread is, for reports about a rank that hangs or that others wait for.

Looks from another thread, so it sees a rank that is stuck inside a collective.
"""

from __future__ import annotations

import math
import sys
import threading
import time
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
_POLL_S = 0.1
WAITING = "waiting in"


def describe(stack: traceback.StackSummary) -> str:
    """In a few words: the collective waited in, if any, and the user's own line."""
    collective = next((frame.name for frame in stack if _is_collective(frame)), "")
    users = [f for f in stack if not f.filename.startswith((_OURS, _TORCH, "<frozen"))]
    own = [f for f in stack if f.filename.startswith(_OURS)]
    line = (users or own or list(stack))[-1]
    place = f"{Path(line.filename).name}:{line.lineno} in {line.name}"
    return f"{WAITING} {collective} ({place})" if collective else f"at {place}"


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


class HangWatch:
    """A thread that reports where the main thread is: on request through `folder`, and after `hang_s` without a beat.

    `beat` says that all is well; a run that beats never hangs. One that hangs is told of once, until it beats again.
    """

    def __init__(self, *, rank: int, hang_s: float | None = None, folder: MemberFolder | None = None) -> None:
        self._rank = rank
        self._hang_s = hang_s
        self._folder = folder
        self._main = threading.main_thread().ident
        self._end = threading.Event()
        self._last_beat = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="trek-lookout", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """A batch is done."""
        self._last_beat = time.monotonic()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_POLL_S):
            if self._folder is not None and self._folder.is_asked:
                self._folder.answer({"where": _error_place or describe(self._stack())})
            if self._hang_s is not None and time.monotonic() - self._last_beat > self._hang_s:
                self._last_beat = math.inf
                self._tell_hang()

    def _tell_hang(self) -> None:
        stack = self._stack()
        print(
            f"trek: rank {self._rank} has not finished a batch for {self._hang_s:g} s: {describe(stack)}.\n"
            + "".join(stack.format()[-8:]),
            file=sys.stderr,
            flush=True,
        )

    def _stack(self) -> traceback.StackSummary:
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        return traceback.extract_stack(frame)


def ask_where(gang: Gang, *, timeout_s: float = 1.0) -> dict[int, str]:
    """Where the ranks that are still alive are, by their own report."""
    return {rank: answer["where"] for rank, answer in gang.ask(timeout_s=timeout_s).items()}

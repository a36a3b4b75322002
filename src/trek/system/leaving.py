"""How a process of Trek's own ends: at once, after its exit functions."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn


def leave(code: int) -> NoReturn:
    """End this process with `code`.

    torch's communication threads may still run when C++ tears its globals down, which now and then aborts a process
    that had finished its work. Nothing needs that teardown: exit functions run, streams are flushed, and the kernel
    does the rest.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_and_leave(main: Callable[[], Any]) -> NoReturn:
    """Call `main`, which exits as programs do, and end this process without taking the interpreter apart.

    Taking it apart is a quarter of the time of a short command. The interpreter still ends as it always does after an
    exception, while a thread has work to do, and if the output cannot be written.
    """
    try:
        main()
        code: Any = 0
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    if isinstance(code, int) and _can_write_output() and not _has_busy_threads():
        leave(code)
    sys.exit(code)


def _can_write_output() -> bool:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed, or nobody reads it
        return False
    return True


def _has_busy_threads() -> bool:
    return any(not thread.daemon for thread in threading.enumerate() if thread is not threading.current_thread())

"""How a worker process ends: at once, after its exit functions."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


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

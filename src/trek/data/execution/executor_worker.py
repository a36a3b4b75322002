"""The program a data worker runs: read a call from the pipe, make it, answer; until the pipe closes.

Started by `trek.data.execution.processes`, which is the only one that speaks to it.
"""

from __future__ import annotations

import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from trek.errors import TrainingError


def main(descriptor: int, number: int, num_workers: int) -> None:
    """Serve calls from the pipe with this file descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starter's to handle: it closes the pipe
    pipe = Connection(descriptor)
    try:
        sys.path[:] = cloudpickle.loads(pipe.recv_bytes())
        _limit_threads(number, num_workers)
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))
    except (EOFError, OSError):
        return


def _limit_threads(number: int, num_workers: int) -> None:
    import os

    import pyarrow as pa

    from trek.data.execution.parallel import set_worker_id
    from trek.data.execution.polars_engine import limit_threads
    from trek.data.execution.worker_memory import keep_freed_memory

    set_worker_id(number)
    keep_freed_memory()
    num_threads = max(1, (os.cpu_count() or 1) // num_workers)
    pa.set_cpu_count(num_threads)
    limit_threads(num_threads)


def _answer(message: bytes) -> bytes:
    try:
        function, arguments = cloudpickle.loads(message)
        return pickled_answer(("done", function(*arguments)))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the starter raises it
        return pickled_answer(("failed", error))


def pickled_answer(answer: tuple[str, Any]) -> bytes:
    """`("done", result)` or `("failed", error)`, in a form that the starter can load."""
    try:
        pickled: bytes = cloudpickle.dumps(answer)
        cloudpickle.loads(pickled)
        return pickled
    except Exception:  # noqa: BLE001 - an exception whose class cannot travel is sent as text
        error = answer[1]
        described = TrainingError(f"{type(error).__name__}: {error}", traceback_text=traceback.format_exc())
        fallback: bytes = cloudpickle.dumps(("failed", described))
        return fallback


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))

"""Runs a call for each partition in parallel, and stops cleanly when one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from trek.data.progress import progress_bar

_Result = TypeVar("_Result")
_here = threading.local()


def run_all(run: Callable[[int], _Result], count: int, *, num_threads: int) -> list[_Result]:
    """`[run(0), run(1), …]` on threads; after a failure nothing new starts, and the first error by index is raised."""
    if min(count, num_threads) <= 1:
        return [run(index) for index in range(count)]
    with (
        progress_bar(count, title="data", unit=" partitions", delay_s=1.0) as bar,
        ThreadPoolExecutor(num_threads, thread_name_prefix="trek-data", initializer=_number_thread()) as pool,
    ):
        futures = [pool.submit(run, index) for index in range(count)]
        for future in futures:
            future.add_done_callback(lambda _: bar.update())
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=True, cancel_futures=True)
    for future in futures:
        if not future.cancelled() and (error := future.exception()) is not None:
            raise error
    return [future.result() for future in futures]


def worker_id() -> int:
    """The number of the worker that runs the calling function, from 0."""
    return getattr(_here, "worker_id", 0)


def set_worker_id(number: int) -> None:
    """Set the number of the worker that the calling thread is."""
    _here.worker_id = number


def _number_thread() -> Callable[[], None]:
    numbers = iter(range(1 << 30))
    lock = threading.Lock()

    def initialise() -> None:
        with lock:
            set_worker_id(next(numbers))

    return initialise

"""Polars, which does the relational work: loaded on first use, with a number of threads and a budget of memory.

Its threads do not survive a fork. A process that was forked after Polars was loaded never calls it: `is_usable` is
false there, and `trek.data.plans.lowering` has the work done by a fresh process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from trek.errors import DataUnavailable, InputError, OutsideError
from trek.world import World

_MIN_BUDGET_MB = 128  # below this, Polars holds more than it can spill, and may look for something to spill for ever
_DAMAGED = "File out of specification"
_THREADS = "POLARS_MAX_THREADS"
_lock = threading.Lock()
_num_threads: int | None = None
_is_forked = False


def load_polars() -> ModuleType:
    """The module, with as many threads as this process may use; nothing else imports it."""
    if "polars" not in sys.modules:
        with _lock:
            _import_with_threads(_num_threads or _share_of_cores())
    import polars

    return polars


def limit_threads(num_threads: int) -> None:
    """Let Polars use this many threads; without effect once it is loaded."""
    global _num_threads
    _num_threads = num_threads


def is_usable() -> bool:
    """Whether Polars can run in this process: not in one that was forked after Polars had been loaded."""
    return not _is_forked


def set_budget(memory_limit_bytes: int, spill_dir: Path | None) -> None:
    """Let Polars spill to disk beyond this much memory. Counts for the whole process, from the next query on."""
    budget = max(_MIN_BUDGET_MB, memory_limit_bytes // 1_000_000)
    settings = {"POLARS_OOC_MEMORY_BUDGET_MB": str(budget)}
    if spill_dir is not None:
        settings["POLARS_OOC_SPILL_DIR"] = str(spill_dir)
    with _lock:
        before = {name: os.environ.get(name) for name in settings}
        load_polars_settings(settings)
        _restore(before)  # Polars has read them; processes that we start must not inherit them


def load_polars_settings(settings: dict[str, str]) -> None:
    """Have Polars read these environment variables now, by the only public way there is."""
    import polars

    polars.Config.load(json.dumps({"environment": settings, "direct": {}}))


@contextmanager
def polars_errors(where: str, *, reads: str = "") -> Iterator[None]:
    """Errors of Polars as ours: what it refuses is the caller's mistake, a damaged file or a panic is not.

    `reads` names the files, which Polars does not.
    """
    pl = load_polars()
    place = f"{where} ({reads})" if reads else where
    try:
        yield
    except pl.exceptions.PolarsError as error:
        if _DAMAGED in str(error):
            raise DataUnavailable(
                f"{place}: a file is damaged: {first_line(error)}. Write or fetch it again."
            ) from error
        raise InputError(f"cannot compute `{where}`: {first_line(error)}.") from error
    except OSError as error:
        raise DataUnavailable(f"{place}: a file cannot be read: {first_line(error)}.") from error
    except InputError as error:  # of a function that Polars called, which adds its plan to the text
        raise InputError(str(error).partition("\n\nThis error occurred")[0]) from error
    except pl.exceptions.PanicException as error:
        raise OutsideError(f"Polars failed to compute {where}: {first_line(error)}.") from error


def first_line(error: BaseException) -> str:
    """What an error of Polars says, without the plan that follows."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _import_with_threads(num_threads: int) -> None:
    before = dict(os.environ)
    os.environ.setdefault(_THREADS, str(num_threads))
    try:
        import polars

        polars.thread_pool_size()  # reads the variable
    finally:
        # Without ours, and without what importing Polars sets for its allocator.
        _restore({name: before.get(name) for name in {*before, *os.environ}})


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def _share_of_cores() -> int:
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // World.from_env().local_size)


def _note_fork() -> None:
    global _is_forked
    _is_forked = _is_forked or "polars" in sys.modules


os.register_at_fork(after_in_child=_note_fork)

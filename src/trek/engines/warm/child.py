"""How a process that was forked from a warm parent becomes what `python -m module` would have been.

Runs in the member, once, before any code of the user. Everything a fresh interpreter takes from its environment is put
in place here, or was the same in the parent: see `rules`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import re
import runpy
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Collection
from typing import Any, NoReturn

from trek.engines.warm.rules import ROOM, THREADS
from trek.system.leaving import leave

_PR_SET_NAME = 15
_SETTERS = {
    "openblas": ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"),
    "libgomp": ("omp_set_num_threads",),
    "libiomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
}
"""By a part of a library's file name, the function that sets its number of threads: the first that it has."""


def become_module(
    request: dict[str, Any], env: dict[str, str], *, inherited: dict[str, Any], library_fds: Collection[int]
) -> NoReturn:
    """Run the module that the request's command line names, and end as the interpreter does.

    `inherited` is what the starter would have handed down to a child; `library_fds` were opened by what is imported.
    """
    module, args = request["argv"][2], request["argv"][3:]
    reset_signals(ignored=inherited["ignored_signals"])
    os.umask(inherited["umask"])
    close_fds(keep={0, 1, 2, *library_fds})
    _use_environment(env)
    _use_threads(env)
    _renew_randomness()
    show_title(request["argv"])
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # noqa: PTH109 - as the interpreter does
    importlib.invalidate_caches()
    sys.orig_argv = list(request["argv"])
    sys.argv = ["-m", *args]
    leave(_run(module))


def reset_signals(*, ignored: Collection[int] = ()) -> None:
    """Signals as a fresh Python interpreter has them."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # The C library keeps some real-time signals for itself.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def close_fds(*, keep: Collection[int]) -> None:
    """Close every descriptor but those in `keep`."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - in the way of every start
        if int(name) not in keep:
            with contextlib.suppress(OSError):  # the one that the listing itself used
                os.close(int(name))


def count_threads(env: dict[str, str]) -> int:
    """How many threads torch takes in a fresh process with this environment."""
    named = re.match(r"\s*(\d+)", env.get(THREADS, ""))
    return int(named[1]) if named and int(named[1]) > 0 else len(os.sched_getaffinity(0))


def show_title(argv: list[str]) -> None:
    """Show the member's command line in lists of processes, as far as the parent's own one has room."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(os.path.basename(argv[0]).encode()[:15]))  # noqa: PTH119
    with open("/proc/self/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    title = b"\0".join(part.encode(errors="replace") for part in argv) + b"\0"
    if 0 < start < end:
        ctypes.memmove(start, title[: end - start - 1].ljust(end - start, b"\0"), end - start)


def _use_environment(env: dict[str, str]) -> None:
    _show_environment(env)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None


def _show_environment(env: dict[str, str]) -> None:
    """Show the member's environment in /proc, behind the parent's, as far as there is room: the kernel shows the memory
    that a process began with, and in the parent's a variable that nobody reads was left for this."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    start, length = library.getenv(ROOM.encode()), len(os.environ.get(ROOM, ""))
    if not start:
        return
    block = b"\0"
    for name, value in env.items():
        one = os.fsencode(f"{name}={value}") + b"\0"
        block += one if len(block) + len(one) <= length else b""
    ctypes.memmove(start, block.ljust(length, b"\0"), length)


class ThreadSetters:
    """Sets how many threads libraries use that were loaded when OMP_NUM_THREADS had another value."""

    def __init__(self) -> None:
        self._functions: list[Any] = []

    def find(self) -> None:
        """Look for the libraries that are loaded now."""
        for part, names in _SETTERS.items():
            for path in _loaded_libraries(part):
                library = ctypes.CDLL(path)
                self._functions += [getattr(library, name) for name in names if hasattr(library, name)][:1]

    def use(self, env: dict[str, str]) -> None:
        """As many threads as a fresh process with this environment would use."""
        count = count_threads(env)
        for function in self._functions:
            function(ctypes.c_int(count))
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(count)


def _use_threads(env: dict[str, str]) -> None:
    """The parent's libraries were loaded with one thread each."""
    setters = ThreadSetters()
    setters.find()
    setters.use(env)


def _loaded_libraries(name: str) -> set[str]:
    with open("/proc/self/maps") as file:  # noqa: PTH123
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if name in line}
    return {path for path in paths if path.startswith("/") and ".so" in path}


def _renew_randomness() -> None:
    """Python's own generator is seeded anew by fork; these are not."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    multiprocessing.current_process().authkey = os.urandom(32)


def _run(module: str) -> int:
    """Run `module` as `__main__`; the exit code."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules.pop(module, None)  # it was imported for its imports only
    code = 1
    try:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        code = 0
    except SystemExit as exit_:
        code = _exit_code(exit_)
    except KeyboardInterrupt as error:
        _show(error)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - the interpreter's own way to end
        _show(error)
    threading._shutdown()  # type: ignore[attr-defined]
    return code


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None or isinstance(exit_.code, int):
        return (exit_.code or 0) & 0xFF
    print(exit_.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    trace = error.__traceback__
    shown = trace.tb_next if trace is not None else None
    sys.excepthook(type(error), error.with_traceback(shown), shown)

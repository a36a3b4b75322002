"""Fixtures of every test: an own TREK_HOME, no sockets beyond loopback, and a failure for whatever leaks."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from trek.engines.warm.refusals import SUFFIX
from trek.engines.warm.warm_agent import WarmParents
from trek.world.addresses import is_loopback

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_DATA = REPOSITORY.parent / "shared" / "data"

# How long an example takes never decides a test.
hypothesis.settings.register_profile("trek", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("trek")
# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is loaded and collected now stays to the end: the garbage collector need not look through it any more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _small_heap() -> Iterator[None]:
    """The same for what a file of tests left: a test that collects garbage took seconds late in a run."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def home(_no_leaks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TREK_HOME of the test's own, and no master, mirror or rank inherited from whoever runs the tests."""
    for name in [n for n in os.environ if n.startswith("TREK_")] + ["RANK", "WORLD_SIZE", "LOCAL_RANK"]:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "trek-home"
    monkeypatch.setenv("TREK_HOME", str(folder))
    monkeypatch.setenv("TREK_WARM_START", "0")
    return folder


@pytest.fixture(scope="session")
def _warm_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("warm")
    folder.chmod(0o700)
    yield folder
    pids = warm_parents(folder)
    refused = [path.read_text() for path in folder.glob(f"*{SUFFIX}")]
    WarmParents(folder).close()
    assert not refused, f"processes that should start warm did not: {refused}"
    left = _wait_until_gone(lambda: [str(pid) for pid in pids if psutil.pid_exists(pid)])
    assert not left, "warm parents did not end with their folder"


@pytest.fixture
def warm_dir(home: Path, _warm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets the test start processes warm, from a parent that the tests share: the default outside of tests."""
    monkeypatch.delenv("TREK_WARM_START")
    monkeypatch.setenv("TREK_WARM_DIR", str(_warm_dir))
    return _warm_dir


def warm_parents(folder: Path) -> list[int]:
    """Process ids of the warm parents that serve `folder`; not their children, which look the same for a moment."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if "trek.engines.warm.parent" in command and any(part.startswith(str(folder)) for part in command):
                found[process.pid] = process.ppid()
    return [pid for pid, parent in found.items() if parent not in found]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; skips where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real data at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Fail a test that leaves a process, thread, listening port, environment variable or process group behind.

    The first fixture of all, so that it looks after `monkeypatch` has put everything back.
    """
    before_env = dict(os.environ)
    before_threads = set(threading.enumerate())
    before_children = {p.pid for p in _children()}
    before_ports = _listening_ports()
    yield
    leaks = [
        *_wait_until_gone(
            lambda: [f"thread {t.name}" for t in set(threading.enumerate()) - before_threads if _ours(t)]
        ),
        *_wait_until_gone(lambda: _leaked_children(before_children)),
        *_wait_until_gone(lambda: [f"listening port {p}" for p in _listening_ports() - before_ports]),
        *[f"environment variable {n}" for n in _changed_variables(before_env)],
        *_process_group(),
    ]
    if leaks:
        pytest.fail("the test leaked: " + ", ".join(leaks), pytrace=False)


def _wait_until_gone(find: Callable[[], list[str]], *, timeout_s: float = 30.0) -> list[str]:
    deadline = time.monotonic() + timeout_s
    while (found := find()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _ours(thread: threading.Thread) -> bool:
    # torch's autograd, tqdm, MLflow's downloads and the asynchronous gRPC that Ray uses keep threads for the life of
    # the process by design.
    kept = ("Dummy", "tqdm", "pydevd", "AnyIO", "Mlflow")
    return thread.is_alive() and not thread.name.startswith(kept) and not thread.name.endswith("(_poll_wrapper)")


def _leaked_children(before: set[int]) -> list[str]:
    leaked = []
    for process in _children():
        try:
            command = " ".join(process.cmdline())
            is_known = "resource_tracker" in command or "forkserver" in command or _of_service(process, before)
            if process.pid not in before and not is_known:
                leaked.append(f"process {process.pid} ({command[:80] or process.name()})")
        except psutil.Error:
            continue
    return leaked


def _of_service(process: psutil.Process, before: set[int]) -> bool:
    """Whether it belongs to a browser or a Ray cluster that several tests share, which start processes as they like."""
    return any(one.pid in before and one.name().startswith(("chrom", "raylet")) for one in process.parents())


def _children() -> list[psutil.Process]:
    """All processes below this one. psutil goes through every process of the machine, so it is asked last."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return psutil.Process().children(recursive=True)


def _listening_ports() -> set[int]:
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def _changed_variables(before: dict[str, str]) -> list[str]:
    ignored = {"PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK"}
    changed = {n for n in before.keys() | os.environ.keys() if before.get(n) != os.environ.get(n)} - ignored
    # torch sets these itself when its compiler is first touched.
    names = {n for n in changed if not n.startswith(("TORCHINDUCTOR", "TRITON"))}
    for name in names:
        if name in before:
            os.environ[name] = before[name]
        else:
            os.environ.pop(name, None)
    return sorted(names)


def _process_group() -> list[str]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
        return ["a process group"]
    return []


@pytest.fixture(autouse=True)
def _loopback_only(_no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches for another machine fails at once."""
    real_connect = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            raise AssertionError(f"a test tried to connect to {address}: only loopback is allowed")
        real_connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)

"""Flows on a disk that is really full, and what a killed run leaves in shared memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import trek
from trek.errors import OutsideError, StorageError
from trek.flow import scratch
from trek.flow.cleaning import clean_flow
from trek.flow.flow_store import FlowStore
from trek.flow.memory import SharedMemory, remove_left_memory

FULL = """
import os, numpy as np, trek
from pathlib import Path

def many(i): return np.full(20000, i, dtype="float64")
def tensor():
    import torch
    return torch.zeros(2_000_000)
def files():
    path = trek.flow.scratch() / "f"
    path.write_bytes(b"x" * 8_000_000)
    return path
def printed(): print("x" * 8_000_000, flush=True)

which = os.environ["WHICH"]
flow = trek.Flow("full")
if which == "many":
    flow.map(many, list(range(60)))
elif which == "command":
    flow.command("wordy", ["python", "-c", "print('x' * 8_000_000)"])
else:
    flow.step(globals()[which])
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("which", ["many", "tensor", "files", "printed", "command"])
def test_a_full_disk_is_one_sentence_and_exit_code_3(which: str, small_disk: Path, tmp_path: Path) -> None:
    """It was three tracebacks, or the failure of the user's code, with exit code 1."""
    (tmp_path / "flow.py").write_text(FULL)
    done = subprocess.run(
        [sys.executable, "-m", "trek", "flow", "run", "flow.py"],
        env={**os.environ, "TREK_HOME": str(small_disk), "WHICH": which},
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "no space left" in done.stderr.splitlines()[-1]
    assert not [path for path in small_disk.rglob("attempts/*") if path.exists()]
    drafts = [path for path in small_disk.glob("flows/full/objects/*/*") if not list(path.iterdir())]
    assert drafts == []


def test_a_run_goes_on_when_there_is_room_again(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_HOME", str(small_disk))

    def write(size: int, after: int) -> Path:
        path = scratch() / f"f{after}"
        path.write_bytes(b"x" * size)
        return path

    flow = trek.Flow("room")
    size = flow.param("size", 8_000_000)
    first = flow.step(lambda: 1, name="first")
    out = flow.step(write, size, first)  # after it: a full disk would not let it be kept
    with pytest.raises(OutsideError, match="no space left"):
        flow.run(show=False)
    store = FlowStore("room", home=small_disk)
    run = store.find_run(None).id
    store.close()
    again = flow.run(show=False, resume=run, params={"size": 1000})
    assert again.states()["first"] == "cached"
    assert again[out].stat().st_size == 1000


def fill(folder: Path) -> None:
    """Leave no byte on the disk of `folder`."""
    with (folder / "fill").open("wb", buffering=0) as file:
        for size in (65536, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


def trek_flow(*words: str, home: Path) -> str:
    """What `trek flow WORDS` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "trek", "flow", *words],
        env={**os.environ, "TREK_HOME": str(home)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def run_twice(home: Path) -> None:
    def write(size: int) -> Path:
        print("writing")
        path = scratch() / "f"
        path.write_bytes(b"x" * size)
        return path

    flow = trek.Flow("big")
    flow.step(write, flow.param("size", 1_000_000))
    flow.run(show=False)
    flow.run(show=False, params={"size": 1000})


@pytest.fixture(params=["full", "read-only"])
def stuck_disk(request: pytest.FixtureRequest, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk with two runs of a flow, on which nothing can be written."""
    monkeypatch.setenv("TREK_HOME", str(small_disk))
    run_twice(small_disk)
    if request.param == "full":
        fill(small_disk)
        yield small_disk
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        yield small_disk
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def test_records_are_read_on_a_disk_that_takes_nothing(stuck_disk: Path) -> None:
    assert "big" in trek_flow("list", home=stuck_disk)
    assert trek_flow("list", "big", home=stuck_disk).count("1 done") == 2
    assert "done" in trek_flow("status", "big", home=stuck_disk)
    assert trek_flow("logs", "big", "write", home=stuck_disk) == "writing\n"
    assert "write" in trek_flow("graph", "big", home=stuck_disk)


@pytest.mark.parametrize("stuck_disk", ["read-only"], indirect=True)
def test_cleaning_a_read_only_disk_is_one_sentence(stuck_disk: Path) -> None:
    with pytest.raises(StorageError, match="Read-only file system"):
        clean_flow("big", home=stuck_disk, keep_runs=1)


def test_cleaning_frees_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_HOME", str(small_disk))
    run_twice(small_disk)
    fill(small_disk)
    assert trek_flow("clean", "big", home=small_disk) == "Removed 1 artefacts, 1000000 bytes.\n"
    assert trek_flow("list", "big", home=small_disk).count("1 done") == 1
    assert trek_flow("clean", "big", home=small_disk) == "Removed 0 artefacts, 0 bytes.\n"
    assert shutil.disk_usage(small_disk).free > 900_000


KILLED = """
import numpy as np, time, trek
def make(): return np.ones(1_000_000)
def slow(x): time.sleep(120)
flow = trek.Flow("killed")
flow.step(slow, flow.step(make), handover="memory")
"""


@pytest.fixture
def left_memory(home: Path, tmp_path: Path) -> Iterator[Path]:
    """What a run leaves in shared memory when all its processes are killed at once."""
    (tmp_path / "flow.py").write_text(KILLED)
    mark = uuid.uuid4().hex
    job = subprocess.Popen(
        [sys.executable, "-m", "trek", "flow", "run", "flow.py"],
        env={**os.environ, "KILL_MARK": mark, "TREK_WARM_START": "0"}, cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    runs = home / "flows" / "killed" / "runs"
    while not (found := [p for run in runs.glob("*") for p in Path("/dev/shm").glob(f"*{run.name}/objects/*/*")]):
        assert job.poll() is None
        time.sleep(0.05)
    for process in psutil.process_iter():
        try:
            if process.environ().get("KILL_MARK") == mark:
                process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue
    job.wait()
    folder = found[0].parents[2]
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_next_run_removes_what_a_killed_job_left_in_memory(left_memory: Path) -> None:
    """It stayed until the machine was restarted."""
    assert (left_memory / "objects").exists()
    flow = trek.Flow("another")
    flow.step(lambda: 1)
    flow.run(show=False)
    assert not left_memory.exists()


def test_clean_removes_what_a_killed_job_left_in_memory(left_memory: Path) -> None:
    subprocess.run([sys.executable, "-m", "trek", "flow", "clean", "killed"], check=True, capture_output=True)
    assert not left_memory.exists()


def test_the_memory_of_a_run_that_is_alive_stays() -> None:
    flow = trek.Flow("alive")
    flow.step(len, flow.step(lambda: np.ones(1)), handover="memory")
    memory = SharedMemory(flow.steps, run=f"test-{uuid.uuid4().hex}", params={})
    try:
        remove_left_memory()
        assert memory.folder.exists()
    finally:
        memory.close()
    assert not memory.folder.exists()

"""Nothing that one step of a flow changes reaches another, and a step draws the same numbers when it runs again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trek
from trek.engines import open_engine
from trek.flow.graph import FunctionWork, Step
from trek.flow.parameters import Settings
from trek.flow.pool import Pool
from trek.flow.tasks import Ended, Mailbox, Task

SEEN: list[str] = []


def spoil(folder: str) -> int:
    """Change whatever a process has one of."""
    import torch

    SEEN.append("spoil")
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    np.set_printoptions(precision=2)
    os.umask(0o077)
    os.environ["LEFT_BY_A_STEP"] = "1"
    os.environ.pop("OMP_NUM_THREADS")
    os.chdir(folder)
    sys.path.append(folder)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    subprocess.Popen(["sleep", "47.5"])
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    return 1


def look(_: int) -> list[Any]:
    import torch

    return [
        list(SEEN),
        random.random(),
        float(np.random.rand()),
        float(torch.rand(())),
        torch.get_num_threads(),
        str(torch.get_default_dtype()),
        np.get_printoptions()["precision"],
        os.umask(0o022),
        sorted(name for name in os.environ if "TREK_" not in name and "PYTEST" not in name),
        os.environ["OMP_NUM_THREADS"],
        str(Path.cwd()),
        sys.path,
        len(warnings.filters),
        str(signal.getsignal(signal.SIGUSR1)),
        subprocess.run(["pgrep", "-fc", "^sleep 47.5"], capture_output=True, text=True, check=False).stdout,
        threading.active_count(),
        list({"a", "b", "c", "d", "e"}),
        hash("text"),
    ]


def test_no_step_finds_what_another_changed(tmp_path: Path) -> None:
    """Steps shared a worker's generators, globals, threads and processes, so a resumed one gave other numbers."""
    flow = trek.Flow("state")
    found = flow.step(look, flow.step(spoil, str(tmp_path)))
    together = flow.run(show=False, parallel=1)[found]
    again = flow.run(show=False, parallel=1, from_step="look")
    assert again.states() == {"spoil": "cached", "look": "done"}
    assert together == again[found]
    assert together[0] == []


def test_parts_of_a_map_draw_different_numbers_and_the_same_again() -> None:
    """Every fresh torch starts from one seed, so parts of a map would all draw the same numbers."""

    def draw(_: int) -> list[float]:
        import torch

        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    flow = trek.Flow("draws")
    parts = flow.map(draw, [0, 0], cache=False)
    first, second = ([run[part] for part in parts] for run in (flow.run(show=False), flow.run(show=False)))
    assert first == second
    assert first[0] != first[1]


def test_a_step_that_dies_fails_alone_and_says_how() -> None:
    flow = trek.Flow("dies")
    flow.step(lambda: os.kill(os.getpid(), signal.SIGSEGV), name="killed")
    flow.step(lambda: os._exit(0), name="left")
    fine = flow.step(lambda: 5, name="fine")
    with pytest.raises(trek.errors.TrainingError, match=r"step 'killed' failed: its process .* was killed by SIGSEGV"):
        flow.run(show=False, parallel=1)
    from trek.flow.records import own_run_or_newest
    from trek.system.home import trek_home

    steps = {step.name: step for step in own_run_or_newest("dies", None, home=trek_home()).steps}
    assert steps["left"].error is not None
    assert "exited with code 0" in steps["left"].error
    assert steps["fine"].state == "done"
    assert fine.name == "fine"


def test_a_step_out_of_time_may_clean_up(tmp_path: Path) -> None:
    note = tmp_path / "note"

    def slow() -> None:
        signal.signal(signal.SIGTERM, lambda *_: (note.write_text("cleaned"), os._exit(0)))
        time.sleep(60)

    flow = trek.Flow("slow")
    flow.step(slow, timeout_s=2)
    with pytest.raises(trek.errors.TrainingError, match="timed out"):
        flow.run(show=False)
    assert note.read_text() == "cleaned"


def test_processes_that_a_step_starts_share_its_cores(tmp_path: Path) -> None:
    """Each of two used to be given all the step's cores."""

    def threads(folder: str) -> None:
        def note(traveler: Any) -> None:
            import torch

            told = f"{os.environ['OMP_NUM_THREADS']} {torch.get_num_threads()}"
            Path(folder, str(traveler.world.rank)).write_text(told)

        trek.run(note, workers=2)

    flow = trek.Flow("cores")
    flow.step(threads, str(tmp_path))
    flow.run(show=False)
    share = max(len(os.sched_getaffinity(0)) // 2, 1)
    assert [(tmp_path / rank).read_text() for rank in "01"] == [f"{share} {share}"] * 2


def test_a_library_that_starts_threads_is_imported_by_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker must not fork with threads: it is replaced by one that leaves the library out."""
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n"
    )
    (tmp_path / "harmless.py").write_text("HERE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    mailbox = Mailbox()
    pool = Pool(open_engine(), size=1, mailbox=mailbox, libraries=["harmless", "threaded", "json"])
    work = FunctionWork(lambda: [name in sys.modules for name in ("harmless", "threaded")], (), {})
    step = Step("ask", work, Settings(timeout_s=600))
    task = Task(step, 1, values=step.values(), run="r", key="k", attempt=tmp_path / "a", log=tmp_path / "log")
    try:
        pool.submit(task)
        assert task.deadline is None, "the start of a worker is not the step's time"
        ended: list[Ended] = []
        while not ended:
            ended = [*pool.attend(list(wait([mailbox.fileno(), *pool.waitables()]))), *mailbox.take()]
        assert ended[0].error is None
        assert task.deadline is not None
        assert ended[0].outputs[0].load() == [True, False]
    finally:
        pool.close()
        mailbox.close()

"""Steps and runs of flows that fail, are killed or hang, and go on where they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import trek
from trek.errors import InputError, TrainingError
from trek.flow.flow_store import FlowStore
from trek.testing.flow_steps import add, num_lines, one, run_flow


def test_a_failure_stops_its_dependants_while_other_branches_finish(tmp_path: Path) -> None:
    def fail(x: int) -> int:
        print("about to fail")
        raise ValueError(f"bad {x}")

    log = tmp_path / "log"
    flow = trek.Flow("failing")
    bad = flow.step(fail, 3)
    flow.step(add, bad, name="after_bad")
    flow.step(one, str(log))
    with pytest.raises(TrainingError, match="step 'fail' failed: ValueError: bad 3") as error:
        run_flow(flow)
    assert "in fail" in error.value.traceback_text
    assert "performing.py" not in error.value.traceback_text
    store = FlowStore("failing", home=Path(os.environ["TREK_HOME"]))
    row = store.find_run(None)
    assert {step.name: step.state for step in store.steps(row.id)} == {
        "fail": "failed",
        "after_bad": "blocked",
        "one": "done",
    }
    assert row.state == "failed"
    assert (store.run_folder(row.id) / "logs" / "fail.log").read_text().startswith("about to fail\n")
    store.close()
    assert num_lines(log) == 1


def test_a_resumed_run_starts_at_the_failed_step(tmp_path: Path) -> None:
    log, switch = tmp_path / "log", tmp_path / "switch"

    def need(path: str, x: int) -> int:
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        return x + 1

    flow = trek.Flow("resumed")
    a = flow.step(one, str(log), cache=False)
    b = flow.step(need, str(switch), a)
    with pytest.raises(TrainingError, match="FileNotFoundError"):
        run_flow(flow)
    switch.touch()
    store = FlowStore("resumed", home=Path(os.environ["TREK_HOME"]))
    failed = store.find_run(None).id
    store.close()
    run = run_flow(flow, resume=failed)
    assert (run.id, run[b]) == (failed, 2)
    assert run.states() == {"one": "cached", "need": "done"}
    assert num_lines(log) == 1, "what was done was not done again, though it is not kept for other runs"


def test_a_step_is_tried_again_with_a_pause(tmp_path: Path) -> None:
    def flaky(log: str) -> int:
        with open(log, "a") as file:
            file.write("try\n")
        if len(Path(log).read_text().splitlines()) < 3:
            raise OSError("not yet")
        return 1

    flow = trek.Flow("flaky")
    flow.step(flaky, str(tmp_path / "log"), retries=2, backoff_s=0.01)
    run = run_flow(flow)
    assert run.steps[0].attempt == 3


def test_retries_end(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def fail(log: str) -> None:
        with open(log, "a") as file:
            file.write("try\n")
        raise OSError("never")

    flow = trek.Flow("retries")
    flow.step(fail, str(log), retries=1, backoff_s=0.01)
    with pytest.raises(TrainingError, match="never"):
        run_flow(flow)
    assert num_lines(log) == 2


def test_a_timeout_ends_the_step_with_all_it_started(tmp_path: Path) -> None:
    def hang(path: str) -> None:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(path).write_text(str(child.pid))
        time.sleep(600)

    flow = trek.Flow("hanging")
    flow.step(hang, str(tmp_path / "pid"), timeout_s=2)
    with pytest.raises(TrainingError, match="timed out after 2 s"):
        run_flow(flow)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("ending", "message"),
    [("os.kill(os.getpid(), 9)", "SIGKILL"), ("os._exit(5)", "code 5"), ("sys.exit(4)", "code 4")],
)
def test_a_step_that_takes_its_process_with_it_is_a_failure_and_others_go_on(
    tmp_path: Path, ending: str, message: str
) -> None:
    log = tmp_path / "log"

    def die(code: str) -> None:
        exec(f"import os, sys; {code}")

    flow = trek.Flow("dying")
    flow.step(die, ending)
    flow.step(one, str(log))
    with pytest.raises(TrainingError, match=message):
        run_flow(flow)
    assert num_lines(log) == 1


def test_a_rank_that_fails_fails_the_step() -> None:
    def together() -> None:
        if os.environ["RANK"] == "1":
            raise KeyError("mine")
        time.sleep(600)

    flow = trek.Flow("failing-rank")
    flow.step(together, workers=2)
    with pytest.raises(TrainingError, match=r"rank 1 of 2 .* KeyError: 'mine'"):
        run_flow(flow)


def test_what_cannot_be_sent_or_stored_says_so() -> None:
    lock = threading.Lock()
    flow = trek.Flow("unsendable")
    flow.step(lambda: lock.locked(), name="captures_a_lock", cache=False)
    with pytest.raises(InputError, match="the function of step 'captures_a_lock' cannot be sent to another process"):
        run_flow(flow)
    other = trek.Flow("unstorable")
    other.step(lambda: object(), name="gives_an_object")
    with pytest.raises(TrainingError, match=r"the step returned a builtins\.object, which cannot be stored"):
        run_flow(other)


def test_a_worker_that_cannot_start_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = trek.Flow("stillborn")
    flow.step(add, 1)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(TrainingError, match="exited with code 1"):
        run_flow(flow)


_INTERRUPTED = """
import sys, time, trek
from pathlib import Path

def first(folder):
    with open(Path(folder) / "log", "a") as file:
        file.write("first\\n")
    return 1

def slow(x, folder):
    Path(folder, "running").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return x + 1

flow = trek.Flow("interrupted")
out = flow.step(slow, flow.step(first, sys.argv[1]), sys.argv[1])
if __name__ == "__main__":
    print(flow.run(parallel=1)[out])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_runner_leaves_no_process_and_a_run_that_can_be_resumed(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    command = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "running").exists():
            assert process.poll() is None
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.communicate(timeout=240)
    psutil.wait_procs(children, timeout=20)
    assert not [child for child in children if child.is_running()]
    store = FlowStore("interrupted", home=Path(os.environ["TREK_HOME"]))
    row = store.find_run(None)
    store.close()
    assert row.true_state == "interrupted"
    (tmp_path / "go").touch()
    resume = "import runpy, sys; flow = runpy.run_path(sys.argv[2])"
    code = f"{resume}; print(flow['flow'].run(resume={row.id!r}, parallel=1)[flow['out']])"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("sys.argv[2]", repr(str(script))), str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "2\n", done.stderr
    assert (tmp_path / "log").read_text() == "first\n"

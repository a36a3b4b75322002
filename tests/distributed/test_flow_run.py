"""Flows run with real worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import trek
from trek.errors import InputError, TrainingError
from trek.flow import OUTPUT_DIR, Run, scratch
from trek.flow.flow_store import FlowStore


def _count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def one(log: str) -> int:
    with open(log, "a") as file:
        file.write("one\n")
    return 1


def add(a: int, b: int = 0) -> int:
    return a + b


def _run(flow: trek.Flow, **settings: Any) -> Run:
    return flow.run(show=False, parallel=2, **settings)


def test_values_go_from_step_to_step(tmp_path: Path) -> None:
    def pair(x: int) -> tuple[int, list[int]]:
        return x, [x]

    flow = trek.Flow("values")
    first, second = flow.step(pair, flow.step(add, 2, b=3), outputs=2)
    total = flow.step(lambda a, b: a + b[0], first, second)
    run = _run(flow)
    assert run[total] == 10
    assert set(run.states().values()) == {"done"}
    assert json.loads(run.path(total).read_text()) == 10


def test_what_has_not_changed_is_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("kept")
    lr = flow.param("lr", 1)
    b = flow.step(add, flow.step(one, str(log)), b=lr)
    assert _run(flow)[b] == 2
    again = _run(flow)
    assert again.states() == {"one": "cached", "add": "cached"}
    changed = _run(flow, params={"lr": 5})
    assert changed[b] == 6
    assert changed.states() == {"one": "cached", "add": "done"}
    assert changed.reasons()["add"] == "argument b changed"
    assert _count(log) == 1


def test_force_from_and_only_choose_what_is_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("chosen")
    a = flow.step(one, str(log), name="a")
    b = flow.step(add, a, name="b")
    flow.step(add, b, name="c")
    flow.step(add, 7, name="d")
    with pytest.raises(InputError, match="step 'a' must run before --only"):
        _run(flow, only="b")
    _run(flow)
    assert _run(flow, only="b").states() == {"a": "cached", "b": "done"}
    assert _run(flow, from_step="b").states() == {"a": "cached", "b": "done", "c": "done", "d": "cached"}
    _run(flow, force=True)
    assert _count(log) == 2


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
        _run(flow)
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
    assert _count(log) == 1


def test_a_command_that_exits_with_three_is_followed_by_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("three")
    bad = flow.command("bad", ["sh", "-c", "echo last words >&2; exit 3"])
    flow.step(one, str(log), after=[bad])
    with pytest.raises(TrainingError, match=r"step 'bad' failed: .* exited with code 3") as error:
        _run(flow)
    assert "last words" in error.value.traceback_text
    assert not log.exists()


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
        _run(flow)
    switch.touch()
    store = FlowStore("resumed", home=Path(os.environ["TREK_HOME"]))
    failed = store.find_run(None).id
    store.close()
    run = _run(flow, resume=failed)
    assert (run.id, run[b]) == (failed, 2)
    assert run.states() == {"one": "cached", "need": "done"}
    assert _count(log) == 1, "what was done was not done again, though it is not kept for other runs"


def test_a_step_is_tried_again_with_a_pause(tmp_path: Path) -> None:
    def flaky(log: str) -> int:
        with open(log, "a") as file:
            file.write("try\n")
        if len(Path(log).read_text().splitlines()) < 3:
            raise OSError("not yet")
        return 1

    flow = trek.Flow("flaky")
    flow.step(flaky, str(tmp_path / "log"), retries=2, backoff_s=0.01)
    run = _run(flow)
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
        _run(flow)
    assert _count(log) == 2


def test_a_timeout_ends_the_step_with_all_it_started(tmp_path: Path) -> None:
    def hang(path: str) -> None:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(path).write_text(str(child.pid))
        time.sleep(600)

    flow = trek.Flow("hanging")
    flow.step(hang, str(tmp_path / "pid"), timeout_s=2)
    with pytest.raises(TrainingError, match="timed out after 2 s"):
        _run(flow)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_command_that_hangs_is_ended_too() -> None:
    flow = trek.Flow("hanging-command")
    flow.command("hang", ["sleep", "600"], timeout_s=0.5)
    with pytest.raises(TrainingError, match=r"timed out after 0\.5 s"):
        _run(flow)


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
        _run(flow)
    assert _count(log) == 1


def test_files_made_in_scratch_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    def make(succeed: bool) -> Path:
        path = scratch() / "model.bin"
        path.write_text("half")
        if not succeed:
            raise RuntimeError("torn")
        path.write_text("whole")
        return path

    def read(path: Path) -> str:
        return f"{path.name}: {path.read_text()}"

    flow = trek.Flow("files")
    succeed = flow.param("succeed", False)
    text = flow.step(read, flow.step(make, succeed))
    with pytest.raises(TrainingError, match="torn"):
        _run(flow)
    store = Path(os.environ["TREK_HOME"]) / "flows" / "files"
    assert not list(store.rglob("model.bin"))
    assert _run(flow, params={"succeed": True})[text] == "model.bin: whole"


def test_a_kept_output_that_was_truncated_is_made_again() -> None:
    def make() -> np.ndarray:
        return np.arange(1000)

    flow = trek.Flow("truncated")
    array = flow.step(make)
    path = _run(flow).path(array)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:100])
    run = _run(flow)
    assert run.states() == {"make": "done"}
    assert "100 bytes instead of" in str(run.reasons()["make"])
    assert run[array].sum() == 499500


def test_a_changed_input_file_is_never_trained_on_stale(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("1\n2\n")

    def prepare(path: Path) -> int:
        return sum(map(int, path.read_text().split()))

    flow = trek.Flow("stale")
    total = flow.step(prepare, raw)
    assert _run(flow)[total] == 3
    raw.write_text("1\n5\n")
    assert _run(flow)[total] == 6


def test_arrays_arrive_as_mapped_views() -> None:
    def make() -> dict[str, np.ndarray]:
        return {"x": np.ones(10)}

    def kind(arrays: dict[str, np.ndarray]) -> tuple[str, float]:
        return type(arrays["x"]).__name__, float(arrays["x"].sum())

    flow = trek.Flow("arrays")
    out = flow.step(kind, flow.step(make))
    assert _run(flow)[out] == ("memmap", 10.0)


def test_hand_over_in_memory_gives_the_same_and_leaves_nothing() -> None:
    def make() -> np.ndarray:
        return np.arange(100)

    def use(array: np.ndarray) -> tuple[int, str]:
        return int(array.sum()), str(getattr(array, "filename", ""))

    flow = trek.Flow("memory")
    out = flow.step(use, flow.step(make), handover="memory")
    run = _run(flow)
    total, filename = run[out]
    assert total == 4950
    assert "/shm/" in filename
    assert not Path(filename).exists()
    assert not list(Path("/dev/shm").glob(f"trek-flow-{run.id}*"))
    assert not list((Path(os.environ["TREK_HOME"]) / "flows" / "memory").rglob("*.npy"))


def test_the_way_of_handing_over_may_be_a_parameter() -> None:
    flow = trek.Flow("chosen-handover")
    way = flow.param("handover", "disk")
    where = flow.step(lambda array: str(array.filename), flow.step(np.arange, 10), handover=way)
    assert "/shm/" in _run(flow, params={"handover": "memory"})[where]
    assert "/shm/" not in _run(flow)[where]
    with pytest.raises(InputError, match="'disk' or 'memory', got 'mail'"):
        _run(flow, params={"handover": "mail"})


def test_what_lasts_by_itself_is_kept_though_it_is_handed_over_in_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("lasting")
    flow.step(add, flow.step(one, str(log)), b=flow.param("b", 1), handover="memory")
    assert _run(flow).states() == {"one": "done", "add": "done"}
    assert _run(flow, params={"b": 2}).states() == {"one": "cached", "add": "done"}
    assert _count(log) == 1


def test_tables_are_handed_over_either_way_with_the_same_rows() -> None:
    def make() -> Any:
        return trek.data.Table.of({"x": np.arange(100)}, num_partitions=2).map(lambda batch: {"x": batch["x"] * 2})

    def total(table: Any) -> tuple[int, str]:
        return int(table.to_numpy()["x"].sum()), table.explain()

    flow = trek.Flow("tables")
    way = flow.param("handover", "disk")
    out = flow.step(total, flow.step(make), handover=way)
    rows, plan = _run(flow, params={"handover": "memory"})[out]
    assert (rows, "shared memory" in plan) == (9900, True)
    rows, plan = _run(flow)[out]
    assert (rows, "shared memory" in plan) == (9900, False)


def test_what_is_handed_over_in_memory_is_not_taken_for_an_older_one() -> None:
    flow = trek.Flow("volatile")
    size = flow.param("size", 10)
    fresh = flow.step(lambda: np.frombuffer(os.urandom(16), dtype=np.uint8), cache=False)
    total = flow.step(lambda array: array.tolist(), fresh, handover="memory")
    kept = flow.step(lambda array: len(array), flow.step(np.arange, size), handover="memory", name="kept")
    first, second = _run(flow), _run(flow)
    assert first[total] != second[total]
    assert (second.states()["kept"], _run(flow, params={"size": 20})[kept]) == ("cached", 20)


def test_several_ranks_perform_a_step_together() -> None:
    def together(base: int) -> list[int]:
        from trek.world import World

        world = World.from_env()
        print(f"rank {world.rank} of {world.size}")
        return [base, world.rank, world.size]

    flow = trek.Flow("ranks")
    out = flow.step(together, flow.step(add, 1), workers=2)
    run = _run(flow)
    assert run[out] == [1, 0, 2]
    log = Path(os.environ["TREK_HOME"]) / "flows" / "ranks" / "runs" / run.id / "logs" / "together.log"
    assert sorted(log.read_text().splitlines()) == ["[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"]


def test_a_rank_that_fails_fails_the_step() -> None:
    def together() -> None:
        if os.environ["RANK"] == "1":
            raise KeyError("mine")
        time.sleep(600)

    flow = trek.Flow("failing-rank")
    flow.step(together, workers=2)
    with pytest.raises(TrainingError, match=r"rank 1 of 2 .* KeyError: 'mine'"):
        _run(flow)


def test_scripts_and_commands_honour_folder_variables_workers_and_hostfile(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.2 slots=1\n")
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
            import os, sys
            if os.environ["RANK"] == "0":
                with open(os.path.join(os.environ["TREK_OUTPUT_DIR"], "out.txt"), "w") as file:
                    file.write(" ".join([os.environ["WORLD_SIZE"], os.environ["LOCAL_WORLD_SIZE"],
                                         os.environ["LEVEL"], os.path.basename(os.getcwd()), *sys.argv[1:]]))
        """)
    )
    flow = trek.Flow("scripts")
    level = flow.param("level", 3)
    out = flow.script(
        "train.py", "--level", level, workers=2, hostfile=tmp_path / "hosts", cwd=tmp_path,
        env={"LEVEL": "high"}, outputs=["out.txt"],
    )  # fmt: skip
    text = flow.step(lambda path: path.read_text(), out)
    assert _run(flow)[text] == f"2 1 high {tmp_path.name} --level 3"
    assert _run(flow).states()["train"] == "cached"
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text().replace("sys.argv[1:]", "['changed']"))
    assert _run(flow)[text].endswith("changed")


def test_threads_of_a_step_are_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = trek.Flow("threads")
    seen = flow.step(lambda: os.environ["OMP_NUM_THREADS"], cache=False)
    own = flow.step(lambda: os.environ["OMP_NUM_THREADS"], env={"OMP_NUM_THREADS": "7"}, cache=False)
    cores = len(os.sched_getaffinity(0))
    assert (_run(flow)[seen], _run(flow)[own]) == (str(max(cores // 2, 1)), "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert _run(flow)[seen] == "5"


def test_a_result_in_a_command_is_its_number_or_text() -> None:
    """The description of the artefact was handed over instead."""
    flow = trek.Flow("words")
    word, number = flow.step(lambda: "hello", name="word"), flow.step(lambda: 3, name="number")
    told = flow.command(
        "tell", ["sh", "-c", 'echo "$1 $2" > "$3/a.txt"', "sh", word, number, OUTPUT_DIR], outputs=["a.txt"]
    )
    assert Path(_run(flow)[told]).read_text() == "hello 3\n"


def test_a_command_must_leave_the_outputs_it_promised(tmp_path: Path) -> None:
    flow = trek.Flow("promise")
    made = flow.command("make", ["sh", "-c", 'echo hello > "$1/a.txt"', "sh", OUTPUT_DIR], outputs=["a.txt"])
    assert _run(flow).path(made).read_text() == "hello\n"
    flow.command("forget", ["true"], outputs=["b.txt"])
    with pytest.raises(TrainingError, match=r"did not write 'b\.txt'"):
        _run(flow)


def test_a_condition_that_is_not_met_skips_the_step_and_what_needs_it() -> None:
    flow = trek.Flow("conditions")
    good = flow.step(lambda x: x > 3, flow.step(add, 1, 1))
    publish = flow.step(add, 1, when=good, name="publish")
    flow.step(add, publish, name="tell")
    assert _run(flow).states() == {"add": "done", "step": "done", "publish": "skipped", "tell": "skipped"}


def test_a_wide_map_is_collected() -> None:
    flow = trek.Flow("wide")
    squares = flow.map(lambda x: x * x, range(1000), name="square")
    total = flow.step(sum, squares)
    assert _run(flow)[total] == sum(x * x for x in range(1000))


def test_a_map_over_an_output_has_as_many_parts_as_the_list_then_has(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def square(x: int, log: str, offset: int = 0) -> int:
        with open(log, "a") as file:
            file.write(f"{x}\n")
        return x * x + offset

    flow = trek.Flow("dynamic")
    size = flow.param("size", 3)
    items = flow.step(lambda n: list(range(n)), size, name="items")
    squares = flow.map(square, items, log=str(log), offset=flow.step(add, 1))
    total = flow.step(sum, squares)
    run = _run(flow)
    assert (run[squares], run[total]) == ([1, 2, 5], 8)
    assert run.states()["square[2]"] == run.states()["square"] == "done"
    longer = _run(flow, params={"size": 4})
    assert longer[total] == 18
    assert (longer.states()["square[2]"], longer.states()["square[3]"]) == ("cached", "done")
    assert _count(log) == 4
    assert _run(flow, params={"size": 0})[total] == 0


def test_a_part_that_fails_blocks_what_needs_the_map_and_a_resume_does_only_that_part(tmp_path: Path) -> None:
    switch, log = tmp_path / "switch", tmp_path / "log"

    def pick(x: int, switch: str, log: str) -> int:
        if x == 1 and not os.path.exists(switch):
            raise ValueError("not yet")
        with open(log, "a") as file:
            file.write(f"{x}\n")
        return x

    flow = trek.Flow("parts")
    picked = flow.map(pick, flow.step(lambda: [0, 1, 2]), switch=str(switch), log=str(log), cache=False)
    total = flow.step(sum, picked)
    with pytest.raises(TrainingError, match=r"step 'pick\[1\]' failed: ValueError: not yet"):
        _run(flow)
    switch.touch()
    store = FlowStore("parts", home=Path(os.environ["TREK_HOME"]))
    failed = store.find_run(None).id
    store.close()
    assert _run(flow, resume=failed)[total] == 3
    assert sorted(log.read_text().split()) == ["0", "1", "2"]


def test_a_map_over_what_is_no_list_fails_while_other_branches_finish(tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = trek.Flow("no-list")
    flow.map(add, flow.step(add, 1), name="each")
    flow.step(one, str(log))
    with pytest.raises(TrainingError, match=r"step 'each' failed: expected a list to map over, got a int\."):
        _run(flow)
    assert _count(log) == 1


def test_independent_branches_run_side_by_side(tmp_path: Path) -> None:
    def meet(mine: str, other: str) -> None:
        Path(mine).touch()
        deadline = time.monotonic() + 240
        while not os.path.exists(other):
            assert time.monotonic() < deadline, "the other branch did not run meanwhile"
            time.sleep(0.01)

    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    flow = trek.Flow("branches")
    flow.step(meet, a, b)
    flow.step(meet, b, a)
    _run(flow)


def test_two_runs_at_the_same_time_do_not_disturb_each_other() -> None:
    def make(seed: int) -> np.ndarray:
        time.sleep(0.05)
        return np.full(1000, seed)

    def build(run: int) -> tuple[trek.Flow, Any]:
        flow = trek.Flow("concurrent")
        arrays = [flow.step(make, seed) for seed in range(5)]
        return flow, flow.step(lambda *parts: int(sum(part.sum() for part in parts)) + 0 * run, *arrays)

    results: list[Any] = []

    def work(number: int) -> None:
        flow, total = build(number)
        results.append(_run(flow)[total])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [10000, 10000]


def test_a_run_that_goes_on_cannot_be_resumed_or_cleaned(tmp_path: Path) -> None:
    store = FlowStore("busy", home=Path(os.environ["TREK_HOME"]))
    run = store.begin_run(["one"], params={}, source=None, graph=[], resume=None)
    with pytest.raises(InputError, match="is running"):
        store.clean(keep_runs=0)
    store.close()
    flow = trek.Flow("busy")
    flow.step(one, str(tmp_path / "log"))
    with pytest.raises(InputError, match="still running"):
        _run(flow, resume=run)


def test_cleaning_removes_what_no_kept_run_used() -> None:
    flow = trek.Flow("cleaned")
    size = flow.param("size", 10)
    array = flow.step(np.arange, size)
    old = _run(flow).path(array)
    new = _run(flow, params={"size": 20})
    store = FlowStore("cleaned", home=Path(os.environ["TREK_HOME"]))
    count, num_bytes = store.clean(keep_runs=1)
    store.close()
    assert (count, num_bytes > 0) == (1, True)
    assert not old.exists()
    assert new.path(array).exists()


def test_what_cannot_be_sent_or_stored_says_so() -> None:
    lock = threading.Lock()
    flow = trek.Flow("unsendable")
    flow.step(lambda: lock.locked(), name="captures_a_lock", cache=False)
    with pytest.raises(InputError, match="the function of step 'captures_a_lock' cannot be sent to another process"):
        _run(flow)
    other = trek.Flow("unstorable")
    other.step(lambda: object(), name="gives_an_object")
    with pytest.raises(TrainingError, match=r"the step returned a builtins\.object, which cannot be stored"):
        _run(other)


def test_a_worker_that_cannot_start_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = trek.Flow("stillborn")
    flow.step(add, 1)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(TrainingError, match="exited with code 1"):
        _run(flow)


def test_a_script_with_a_syntax_error_fails_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    flow = trek.Flow("broken")
    flow.script("broken.py", cwd=tmp_path, outputs=["x"])
    with pytest.raises(TrainingError, match="exited with code 1") as error:
        _run(flow)
    assert "SyntaxError" in error.value.traceback_text


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

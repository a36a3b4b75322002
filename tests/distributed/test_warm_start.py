"""Warm start with real processes: the conformance suite again, what forking must not change, and kills."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import trek
from tests.conftest import warm_parents
from trek.engines import Engine, GangSpec
from trek.engines.local import LocalEngine
from trek.engines.warm.refusals import SUFFIX, add_refusal
from trek.engines.warm.warm_agent import WarmParents
from trek.testing.engine_conformance import EngineConformance
from trek.testing.recorded_gang import IMPORTS, PATIENCE_S, Recorder, python, wait_for
from trek.testing.trials import PointsTrial

TORCH = ("torch", "torch._dynamo")


@pytest.mark.usefixtures("warm_dir")
class TestWarmLocalEngine(EngineConformance):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(warm_start=True)


@pytest.fixture
def own_warm_dir(warm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of parents that the test may kill."""
    folder = tmp_path / "own-warm"
    monkeypatch.setenv("TREK_WARM_DIR", str(folder))
    yield folder
    pids = warm_parents(folder)
    WarmParents(folder).close()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not any(map(_is_running, pids)))


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _has_title(pid: int, words: list[str]) -> bool:
    return psutil.Process(pid).cmdline()[1 : 1 + len(words)] == words


def _ancestors(pid: int) -> list[int]:
    return [parent.pid for parent in psutil.Process(pid).parents()]


def _run(code: str, num_workers: int = 1, *, imports: tuple[str, ...] = IMPORTS, warm: bool = True, **more: Any) -> Any:
    """What each member of a gang printed in its last line, as JSON, by rank."""
    recorder = Recorder()
    spec = GangSpec(python(code), num_workers, imports=imports, **more)
    gang = LocalEngine(warm_start=warm).start(spec, on_line=recorder)
    exits = gang.wait(PATIENCE_S)
    gang.stop()
    assert exits is not None
    assert [one.code for one in exits] == [0] * num_workers, [one.last_lines for one in exits]
    return [json.loads(recorder.texts(rank)[-1]) for rank in range(num_workers)]


def test_a_member_is_forked_from_the_parent_and_looks_like_its_own_command(warm_dir: Path) -> None:
    env = {"MINE": "a=b\nc"}
    gang = LocalEngine().start(GangSpec(python("import time; time.sleep(600)"), 2, imports=IMPORTS, env=env))
    parents = warm_parents(warm_dir)
    for pid in gang.pids.values():
        assert set(_ancestors(pid)) & set(parents), [path.read_text() for path in warm_dir.glob(f"*{SUFFIX}")]
        wait_for(functools.partial(_has_title, pid, ["-m", "trek.testing.code_member"]))
        assert psutil.Process(pid).environ()["MINE"] == "a=b\nc"
    gang.stop(grace_s=1)


def test_a_fresh_process_is_started_where_warm_start_is_off(warm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREK_WARM_START", "0")
    gang = LocalEngine().start(GangSpec(python("import time; time.sleep(600)"), 1, imports=IMPORTS))
    assert os.getpid() in _ancestors(gang.pids[0])
    gang.stop(grace_s=1)


_FACTS = """
    import json, locale, os, resource, signal, sys, threading, __main__
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    own = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TREK_JOB_SECRET", "TREK_MEETING", "TREK_MEMBER_DIR"}
    environ = {name: value for name, value in os.environ.items() if name not in own}
    import torch
    torch.randn(200, 200) @ torch.randn(200, 200)
    print(json.dumps({
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(), "environ": environ,
        "flags": list(sys.flags), "warnoptions": sys.warnoptions, "limits": limits, "nice": os.nice(0),
        "main": [__main__.__spec__.name, __main__.__file__, __main__.__package__],
        "umask": os.umask(0), "affinity": sorted(os.sched_getaffinity(0)), "groups": os.getgroups(),
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals() if number < 32],
        "mask": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "stdio": [[s.encoding, s.errors, s.line_buffering, s.write_through] for s in (sys.stdout, sys.stderr)],
        "stdin": sys.stdin.read(), "locale": locale.getlocale(), "leader": os.getpid() == os.getsid(0),
        "fds": sorted(os.listdir("/proc/self/fd"))[:4], "python_threads": threading.active_count(),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "parallel": torch.__config__.parallel_info(),
    }))
"""


@pytest.mark.parametrize("threads", [None, "1", "2"])
@pytest.mark.usefixtures("warm_dir")
def test_a_warm_member_finds_what_a_fresh_one_finds(
    threads: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    env = {"MINE": "a b"} | ({} if threads is None else {"OMP_NUM_THREADS": threads})
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    mask = os.umask(0o027)
    try:
        warm, fresh = (_run(_FACTS, imports=TORCH, warm=one, env=env, cwd=tmp_path)[0] for one in (True, False))
    finally:
        os.umask(mask)
        signal.signal(signal.SIGUSR1, before)
    assert warm == fresh


@pytest.mark.usefixtures("warm_dir")
def test_members_share_no_randomness_but_that_of_hashes() -> None:
    code = """
        import json, multiprocessing, random, secrets
        import numpy, torch
        key = multiprocessing.current_process().authkey.hex()
        drawn = [random.random(), numpy.random.rand(), float(torch.rand(1, dtype=torch.float64))]
        print(json.dumps([*drawn, torch.initial_seed(), secrets.token_hex(), key]))
    """
    first, second = _run(code, 2, imports=TORCH)
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.usefixtures("warm_dir")
def test_torch_trains_with_threads_and_loader_processes_and_gloo() -> None:
    code = """
        import json, os
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, TensorDataset
        torch.manual_seed(0)
        product = torch.randn(700, 700) @ torch.randn(700, 700)
        num_threads = len(os.listdir("/proc/self/task"))
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, num_workers=2):
            (model(x) - y).square().mean().backward()
            optimizer.step()
        dist.destroy_process_group()
        sums = [float(product.sum()), float(model.module.weight.sum())]
        print(json.dumps([torch.get_num_threads(), num_threads, *sums]))
    """
    env = {"OMP_NUM_THREADS": "2"}
    warm, fresh = (_run(code, 2, imports=TORCH, warm=one, env=env) for one in (True, False))
    assert warm[0][2:] == fresh[0][2:]
    assert warm[0][0] == fresh[0][0] == 2
    assert warm[0][1] >= 2, "OpenMP had a thread of its own"


@pytest.mark.usefixtures("warm_dir")
def test_a_member_takes_down_at_its_exit_what_it_made_itself_alone() -> None:
    code = """
        import json, weakref
        inherited = [one for one in weakref.finalize._registry if one.atexit]
        class Made: pass
        made = Made()
        weakref.finalize(made, print, json.dumps(len(inherited)))
    """
    assert _run(code, imports=TORCH) == [0]


_ENDINGS = {
    "os._exit(9)": 9,
    "import ctypes; ctypes.string_at(0)": -signal.SIGSEGV,
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "sys.exit('told')": 1,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "raise KeyError('gone')": 1,
    "import threading; threading.Thread(target=lambda: (time.sleep(0.2), os._exit(8))).start()": 8,
    "import atexit; atexit.register(lambda: os._exit(7))": 7,
}


@pytest.mark.parametrize("code", _ENDINGS)
@pytest.mark.usefixtures("warm_dir")
def test_a_member_ends_as_a_fresh_one_does(code: str) -> None:
    spec = GangSpec(python(f"import os, signal, sys, time; {code}"), 1, imports=IMPORTS)
    ends = []
    for is_warm in (True, False):
        gang = LocalEngine(warm_start=is_warm).start(spec)
        exits = gang.wait(PATIENCE_S)
        gang.stop()
        assert exits is not None
        ends.append((exits[0].code, exits[0].last_lines))
    assert ends[0][0] == _ENDINGS[code]
    assert ends[0] == ends[1]


@pytest.mark.usefixtures("warm_dir")
def test_a_variable_that_python_reads_when_it_starts_is_honoured() -> None:
    code = "import json, sys; print(json.dumps([sys.flags.hash_randomization, sys.flags.dev_mode]))"
    assert _run(code, env={"PYTHONHASHSEED": "0"}) == [[0, False]]
    assert _run(code, env={"PYTHONDEVMODE": "1"}) == [[1, True]]


def test_members_go_on_when_their_parent_is_killed_and_the_next_have_a_new_one(own_warm_dir: Path) -> None:
    recorder = Recorder()
    spec = GangSpec(python("import time; print('up'); time.sleep(600)"), 2, imports=IMPORTS)
    gang = LocalEngine().start(spec, on_line=recorder)
    wait_for(lambda: recorder.texts(0) == recorder.texts(1) == ["up"])
    [parent] = warm_parents(own_warm_dir)
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: not _is_running(parent))
    second = LocalEngine().start(spec)
    [other] = warm_parents(own_warm_dir)
    assert other != parent
    assert other in _ancestors(second.pids[0])
    assert gang.wait(0) is None
    os.kill(gang.pids[1], signal.SIGUSR1)
    failure = gang.wait_first_failure(PATIENCE_S)
    assert failure is not None
    assert (failure.rank, failure.code) == (1, -signal.SIGUSR1)
    gang.stop(grace_s=1)
    second.stop(grace_s=1)


def test_a_parent_that_is_stopped_holds_nobody_up(own_warm_dir: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert _run("print(1)") == [1]
    [parent] = warm_parents(own_warm_dir)
    os.kill(parent, signal.SIGSTOP)
    assert _run("import os; open(os.environ['RUNS'], 'a').write('once'); print(2)", env={"RUNS": str(runs)}) == [2]
    os.kill(parent, signal.SIGCONT)
    assert _run("print(3)") == [3]
    wait_for(lambda: not psutil.Process(parent).children())
    assert runs.read_text() == "once", "the agent that came too late found no request"


def test_a_gang_may_be_stopped_before_its_parent_is_there(own_warm_dir: Path) -> None:
    gang = LocalEngine().start(GangSpec(python("import time; time.sleep(600)"), 2, imports=TORCH))
    gang.stop(grace_s=1)
    exits = gang.wait(0)
    assert exits is not None
    assert {one.code for one in exits} == {-signal.SIGTERM}
    [parent] = warm_parents(own_warm_dir)
    os.kill(parent, signal.SIGKILL)


_STARTER = """
    import sys, time
    from trek.engines import GangSpec, open_engine
    code = "import time; print('up', flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "trek.testing.code_member", code]
    gang = open_engine().start(GangSpec(command, 2, imports=("trek.world",)))
    print(*gang.pids.values(), flush=True)
    time.sleep(600)
"""


def _start_starter() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(_STARTER)], stdout=subprocess.PIPE, text=True)


def _read_pids(starter: subprocess.Popen[str]) -> list[int]:
    assert starter.stdout is not None
    pids = [int(part) for part in starter.stdout.readline().split()]
    starter.stdout.close()
    return pids


def test_two_starters_at_once_share_one_parent_and_their_members_die_with_them(own_warm_dir: Path) -> None:
    starters = [_start_starter(), _start_starter()]
    pids = [pid for starter in starters for pid in _read_pids(starter)]
    [parent] = warm_parents(own_warm_dir)
    assert len(set(pids)) == 4
    assert all(parent in _ancestors(pid) for pid in pids)
    for starter in starters:
        starter.kill()
        starter.wait()
    wait_for(lambda: not any(map(_is_running, pids)))


def test_a_member_with_an_output_dir_outlives_starter_and_parent_and_is_found_again(
    own_warm_dir: Path, tmp_path: Path
) -> None:
    code = f"""
        from pathlib import Path
        from trek.engines import GangSpec, open_engine
        command = {python("import time; print('up'); time.sleep(600)")!r}
        gang = open_engine().start(GangSpec(command, 1, imports=("trek.world",), output_dir=Path({str(tmp_path)!r})))
        print(gang.pids[0])
        import os; os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    [parent] = warm_parents(own_warm_dir)
    os.kill(parent, signal.SIGKILL)
    gang = LocalEngine().attach(str(tmp_path))
    assert gang.pids == {0: int(done.stdout)}
    wait_for(lambda: [line.text for line in gang.read_log(0)] == ["up"])
    gang.stop(grace_s=5)
    exits = gang.wait(0)
    assert exits is not None
    assert exits[0].code == -signal.SIGTERM


def test_a_parent_ends_when_it_is_idle(tmp_path: Path) -> None:
    folder = tmp_path / "idle"
    parents = WarmParents(folder, idle_s=0.1)
    agent = parents.open_agent(["trek.world"], env=dict(os.environ))
    assert agent is not None
    wait_for(agent.is_ready)
    [parent] = warm_parents(folder)
    agent.close()
    wait_for(lambda: not _is_running(parent))
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_module_that_starts_threads_is_refused_once_and_the_others_start_warm(own_warm_dir: Path) -> None:
    """One refusal made every later member of the environment a fresh process, whatever it imported."""
    code = "import json, os; print(json.dumps(os.getppid()))"
    assert _run(code, imports=("trek.world", "trek.data.table")) != []
    [refusal] = own_warm_dir.glob(f"*{SUFFIX}")
    said = json.loads(refusal.read_text())
    assert list(said) == ["trek.data.table"]
    assert "threads" in said["trek.data.table"]
    _run(code, imports=("trek.data.table",))
    assert warm_parents(own_warm_dir) == [], "nobody tries again"
    _run(code)
    assert len(warm_parents(own_warm_dir)) == 1


def test_a_refusal_is_forgotten_after_an_hour(own_warm_dir: Path) -> None:
    agents = WarmParents(own_warm_dir)
    own_warm_dir.mkdir(mode=0o700)
    add_refusal(agents.folder_of(dict(os.environ)), "trek.world", reason="the disk was full")
    assert agents.open_agent(["trek.world"], env=dict(os.environ)) is None
    [refusal] = own_warm_dir.glob(f"*{SUFFIX}")
    os.utime(refusal, (0, 0))
    agent = agents.open_agent(["trek.world"], env=dict(os.environ))
    assert agent is not None
    wait_for(agent.is_ready)
    agent.close()


def test_a_folder_that_others_may_enter_is_not_used(own_warm_dir: Path) -> None:
    own_warm_dir.mkdir(mode=0o755)
    own_warm_dir.chmod(0o755)
    assert _run("print(1)") == [1]
    assert list(own_warm_dir.iterdir()) == []


def test_a_folder_that_cannot_be_made_makes_no_start_fail(own_warm_dir: Path) -> None:
    own_warm_dir.write_text("a file")
    assert _run("print(1)") == [1]
    own_warm_dir.unlink()


def test_a_warm_fit_trains_bit_for_bit_what_a_fresh_one_trains(warm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> tuple[Any, dict[str, torch.Tensor]]:
        hparams = {"global_batch_size": 8, "rows": 64, "dropout": 0.2, "momentum": 0.9}
        result = trek.fit(PointsTrial, hparams=hparams, max_length=trek.epochs(2), workers=2, show_progress=False)
        assert result.checkpoint is not None
        losses = [row["loss"] for row in result.metrics if "loss" in row]
        return losses, result.checkpoint.state_dict()

    warm = train()
    assert warm_parents(warm_dir) != []
    monkeypatch.setenv("TREK_WARM_START", "0")
    fresh = train()
    assert warm[0] == fresh[0] != []
    assert all(torch.equal(value, fresh[1][name]) for name, value in warm[1].items())

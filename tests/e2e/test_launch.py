"""`trek launch` as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

TREK = [sys.executable, "-m", "trek", "launch"]


def _launch(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TREK, *args], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=240, check=False
    )


def _script(folder: Path, code: str) -> str:
    (folder / "script.py").write_text(code)
    return "script.py"


def test_output_is_prefixed_by_rank_and_arguments_arrive_untouched(tmp_path: Path) -> None:
    script = _script(tmp_path, "import os, sys; print(os.environ['RANK'], sys.argv[1:])")
    done = _launch("--workers", "2", script, "--lr", "0.1", "-n", "-m", "a b", cwd=tmp_path)
    assert done.returncode == 0
    expected = "['--lr', '0.1', '-n', '-m', 'a b']"
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] {rank} {expected}" for rank in range(2)]


def test_one_process_is_not_prefixed(tmp_path: Path) -> None:
    assert _launch("--workers", "1", _script(tmp_path, "print('hello')"), cwd=tmp_path).stdout == "hello\n"


def test_the_first_failing_rank_ends_the_others_and_is_named_last(tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('mine')\ntime.sleep(600)\n",
    )
    done = _launch("--workers", "3", script, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "rank 1 of 3" in last
    assert "ValueError: mine" in last
    own = [line for line in done.stderr.splitlines() if not line.startswith("[rank ")]
    assert len(own) <= 15


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_the_failing_ranks_code_is_returned(tmp_path: Path, ending: str, code: int) -> None:
    script = _script(tmp_path, f"import os, sys, time\n{ending} if os.environ['RANK'] == '0' else time.sleep(600)\n")
    done = _launch("--workers", "2", script, cwd=tmp_path)
    assert done.returncode == code
    assert "rank 0 of 2" in done.stderr.splitlines()[-1]


def test_a_range_of_workers_runs_a_script_without_a_traveler_once_each(tmp_path: Path) -> None:
    script = _script(tmp_path, "open('runs', 'a').write('ran\\n')")
    done = _launch("--workers", "1:3", script, cwd=tmp_path)
    assert (tmp_path / "runs").read_text() == "ran\n" * 3
    assert done.returncode == 0
    assert done.stderr == (
        "trek: each of 3 workers ran the script once; none was replaced, since it trains with no Traveler.\n"
    )


def test_a_script_of_a_range_that_fails_at_its_start_ends_with_its_own_error(tmp_path: Path) -> None:
    done = _launch("--workers", "1:3", _script(tmp_path, "raise ValueError('mine')"), cwd=tmp_path)
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr.splitlines()[-1]


def test_a_module_and_a_command_run_too(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("import sys; print('module', sys.argv[1])")
    assert _launch("-n", "1", "-m", "tool", "x", cwd=tmp_path).stdout == "module x\n"
    assert _launch("-n", "1", "--no-python", "echo", "-n", "x", cwd=tmp_path).stdout == "x\n"


def test_variables_and_the_working_directory_are_honoured(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    script = _script(folder, "import os; print(os.environ['LEVEL'], os.path.basename(os.getcwd()))")
    done = _launch("-n", "1", "--cwd", str(folder), "--env", "LEVEL=a=b", script, cwd=tmp_path)
    assert done.stdout == "a=b inner\n"


def test_gloo_works_with_the_variables_given(tmp_path: Path) -> None:
    script = _script(
        tmp_path,
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(total)\n"
        "print(total.item())\n"
        "dist.destroy_process_group()\n",
    )
    done = _launch("--workers", "2", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] 3.0", "[rank 1] 3.0"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--workers", "0", "script.py"], "--workers needs at least 1, got 0"),
        (["--workers", "4:2", "script.py"], "--workers 4:2: the least comes first"),
        (["--workers", "many", "script.py"], "--workers must be a number, or MIN:MAX such as 1:4, got 'many'"),
        (["missing.py"], "script 'missing.py' does not exist"),
        (["--hostfile", "missing", "script.py"], "hostfile 'missing' cannot be read"),
        (["--workers", "3", "--hostfile", "hosts", "script.py"], "3 workers were asked for, and the hosts have 2"),
        (["--env", "NOTHING", "script.py"], "--env 'NOTHING' is not NAME=VALUE"),
        (["--engine", "moon", "script.py"], "engine 'moon' does not exist"),
        (["--cwd", "nowhere", "--no-python", "true"], "'nowhere' does not exist"),
    ],
)
def test_bad_input_is_one_error_and_code_two(tmp_path: Path, args: list[str], message: str) -> None:
    _script(tmp_path, "")
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    done = _launch(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_hostfile_of_this_machine_decides_the_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n127.0.0.2 slots=1\n")
    script = _script(tmp_path, "import os; e = os.environ; print(e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE'])")
    done = _launch("--hostfile", "hosts", script, cwd=tmp_path)
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == ["0 0 3", "1 1 3", "2 0 3"]


_SLOW = """
import os, signal, subprocess, sys, time
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    yield from _start_slow(tmp_path)


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    yield from _start_slow(tmp_path, "deaf")


def _start_slow(folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    command = [*TREK, "--workers", "2", _script(folder, _SLOW), *args]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        yield process
        process.kill()


def _pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(pid) for _ in range(2) for pid in process.stdout.readline().split("] ")[1].split()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_process_behind(slow: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    pids = _pids(slow)
    slow.send_signal(number)
    assert slow.wait(timeout=240) == code
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_second_interrupt_kills_at_once(deaf: subprocess.Popen[str]) -> None:
    pids = _pids(deaf)
    deaf.send_signal(signal.SIGINT)
    time.sleep(0.3)  # two signals that arrive together are one
    began = time.monotonic()
    deaf.send_signal(signal.SIGINT)
    assert deaf.wait(timeout=240) == 130
    assert time.monotonic() - began < 8, "the grace of the first interrupt was waited for"
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_killing_the_launcher_takes_everything_with_it(slow: subprocess.Popen[str]) -> None:
    pids = _pids(slow)
    slow.kill()
    slow.wait()
    deadline = time.monotonic() + 240
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_reader_that_leaves_ends_the_gang(tmp_path: Path) -> None:
    script = _script(tmp_path, "import itertools\nfor n in itertools.count(): print(n, flush=True)\n")
    with subprocess.Popen([*TREK, "-n", "2", script], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=240) == 141


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[str]:
    """A real sshd on a high port of loopback; gives what TREK_SSH must be to reach it under any host name."""
    server = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if server is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd on this machine")
    if os.geteuid() == 0:  # Debian's sshd insists on this folder when root runs it
        Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    port = 20022 + os.getpid() % 10000
    options = [
        f"HostKey={tmp_path}/host", f"AuthorizedKeysFile={tmp_path}/authorized", "StrictModes=no", "UsePAM=no",
        f"ListenAddress=127.0.0.1:{port}", f"PidFile={tmp_path}/pid", "PermitRootLogin=yes",
    ]  # fmt: skip
    process = subprocess.Popen([server, "-D", *(part for option in options for part in ("-o", option))])
    yield (
        f"ssh -p {port} -i {tmp_path}/user -o HostName=127.0.0.1 -o StrictHostKeyChecking=no "
        f"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectionAttempts=20"
    )
    process.terminate()
    process.wait()


def test_other_hosts_are_reached_over_a_real_ssh(tmp_path: Path, sshd: str) -> None:
    (tmp_path / "hosts").write_text("node-a slots=1\nnode-b slots=2\n")
    script = _script(tmp_path, "import os; e = os.environ; print(e['RANK'], e['LOCAL_RANK'], e['MASTER_ADDR'])")
    done = _launch("--hostfile", "hosts", script, cwd=tmp_path, TREK_SSH=sshd)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split("] ")[1] for line in done.stdout.splitlines())
    assert lines == ["0 0 node-a", "1 0 node-a", "2 1 node-a"]


def test_a_failure_on_another_host_is_told_and_ends_the_rest(tmp_path: Path, sshd: str) -> None:
    (tmp_path / "hosts").write_text("node-a slots=1\nnode-b slots=1\n")
    code = "import os, time\nif os.environ['RANK'] == '1': raise KeyError('over there')\ntime.sleep(600)\n"
    done = _launch("--hostfile", "hosts", _script(tmp_path, code), cwd=tmp_path, TREK_SSH=sshd)
    assert done.returncode == 1
    assert "rank 1 of 2 on node-b" in done.stderr.splitlines()[-1]
    assert "KeyError: 'over there'" in done.stderr


def test_killing_the_launcher_ends_what_runs_over_ssh(tmp_path: Path, sshd: str) -> None:
    (tmp_path / "hosts").write_text("node-a slots=1\nnode-b slots=1\n")
    script = _script(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    command = [*TREK, "--hostfile", "hosts", script]
    env = {**os.environ, "TREK_SSH": sshd}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline().split("] ")[1]) for _ in range(2)]
        process.kill()
    deadline = time.monotonic() + 240
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_failing_torch_distributed_script_shows_its_exception(tmp_path: Path) -> None:
    """The summary was `[rank1]: Traceback (most recent call last):`."""
    code = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\n"
        "import time; time.sleep(0.5)\n"  # torch aborts a process that ends while gloo's threads release a tensor
        "if dist.get_rank() == 1: raise RuntimeError('the real culprit')\n"
        "time.sleep(60)\n"
    )
    done = _launch("-n", "2", _script(tmp_path, code), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("exited with code 1: RuntimeError: the real culprit")


def test_a_host_that_cannot_be_reached_is_one_sentence_and_exit_code_3(tmp_path: Path) -> None:
    """It was ssh's exit code, 255."""
    (tmp_path / "hosts").write_text("nowhere.invalid slots=2\n")
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: Could not resolve hostname nowhere.invalid' >&2\nexit 255\n")
    ssh.chmod(0o755)
    done = _launch("--hostfile", "hosts", _script(tmp_path, "print(1)"), cwd=tmp_path, TREK_SSH=str(ssh))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert (
        "trek: error: host 'nowhere.invalid' cannot be reached: ssh: Could not resolve" in done.stderr.splitlines()[-1]
    )
    (tmp_path / "flow.py").write_text(
        "import trek\nflow = trek.Flow('far')\nflow.script('script.py', workers=2, hostfile='hosts', name='far')\n"
    )
    (tmp_path / "script.py").write_text("print(1)")
    command = [sys.executable, "-m", "trek", "flow", "run", "flow.py"]
    env = {**os.environ, "TREK_SSH": str(ssh)}
    flow = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert flow.returncode == 3, flow.stderr
    assert "step 'far' failed: host 'nowhere.invalid' cannot be reached" in flow.stderr.splitlines()[-1]


def test_a_script_finds_the_variables_of_torchrun(tmp_path: Path) -> None:
    """GROUP_RANK, ROLE_RANK and TORCHELASTIC_RUN_ID were missing: the same script under both, with the same answers."""
    names = (
        "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    )  # fmt: skip
    code = (
        "import os, json, torch.distributed as dist\n"
        f"values = {{name: os.environ.get(name) for name in {names!r}}}\n"
        "values['launched'] = dist.is_torchelastic_launched()\n"
        "print(json.dumps(values), flush=True)\n"
        "dist.init_process_group('gloo'); dist.barrier(); dist.destroy_process_group()\n"
    )
    script = _script(tmp_path, code)
    ours = _launch("-n", "2", script, cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    theirs = subprocess.run(torchrun, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=240)

    def told(text: str) -> list[dict[str, str]]:
        found = (json.loads(line[line.index("{") :]) for line in text.splitlines() if "{" in line)
        return sorted(found, key=lambda one: str(one["RANK"]))

    assert told(ours.stdout) == told(theirs.stdout)

"""The local engine with real processes: the conformance suite, and what only it promises."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from trek.engines import Engine, GangSpec, OsUser
from trek.engines.local import LocalEngine
from trek.errors import InputError
from trek.testing.engine_conformance import EngineConformance
from trek.testing.recorded_gang import PATIENCE_S, Recorder, python, wait_for


class TestLocalEngine(EngineConformance):
    @pytest.fixture
    def engine(self) -> Engine:
        return LocalEngine(warm_start=False)


_STARTER = """
import sys, time
from pathlib import Path
from trek.engines import GangSpec, open_engine
output_dir = Path(sys.argv[1]) if len(sys.argv) > 1 else None
code = "import time; print('up'); time.sleep({seconds}); print('done'); raise SystemExit(4)"
gang = open_engine().start(GangSpec([sys.executable, "-uc", code], 2, output_dir=output_dir))
print(*gang.pids.values(), flush=True)
time.sleep(600)
"""


def _start_then_kill(*args: str, seconds: float) -> list[int]:
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER.replace("{seconds}", str(seconds)), *args], stdout=subprocess.PIPE
    )
    assert starter.stdout is not None
    pids = [int(part) for part in starter.stdout.readline().split()]
    starter.kill()
    starter.wait()
    starter.stdout.close()
    return pids


def test_members_die_with_a_starter_that_was_killed() -> None:
    pids = _start_then_kill(seconds=600)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_members_with_an_output_dir_outlive_the_starter_and_are_found_again(tmp_path: Path) -> None:
    pids = _start_then_kill(str(tmp_path), seconds=1)
    recorder = Recorder()
    gang = LocalEngine().attach(tmp_path, on_line=recorder, on_exit=recorder)
    assert list(gang.pids.values()) == pids
    exits = gang.wait(PATIENCE_S)
    assert exits is not None
    assert [one.code for one in exits] == [4, 4]
    assert recorder.texts(0) == recorder.texts(1) == ["up", "done"]
    gang.stop()


def test_a_gang_that_was_found_again_can_be_stopped(tmp_path: Path) -> None:
    pids = _start_then_kill(str(tmp_path), seconds=600)
    gang = LocalEngine().attach(tmp_path)
    gang.stop(grace_s=5)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    exits = gang.wait(0)
    assert exits is not None
    assert {one.code for one in exits} == {-signal.SIGTERM}


def test_attaching_where_nothing_ran_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no gang"):
        LocalEngine().attach(tmp_path)


def test_output_goes_to_files_and_is_still_heard(tmp_path: Path) -> None:
    recorder = Recorder()
    spec = GangSpec(python("print('hello'); raise KeyError('gone')"), 2, output_dir=tmp_path / "out")
    gang = LocalEngine().start(spec, on_line=recorder, on_exit=recorder)
    failure = gang.wait_first_failure(PATIENCE_S)
    assert failure is not None
    assert failure.last_lines[-1] == "KeyError: 'gone'"
    gang.wait(PATIENCE_S)
    assert recorder.texts(1)[0] == "hello"
    assert (tmp_path / "out" / "rank_1.log").read_text().startswith("hello\n")
    gang.stop()


def test_killing_an_agent_ends_its_member() -> None:
    gang = LocalEngine().start(GangSpec(python("import time; time.sleep(600)"), 1))
    member = psutil.Process(gang.pids[0])
    agent = member.parent()
    assert agent is not None
    agent.kill()
    failure = gang.wait_first_failure(PATIENCE_S)
    assert failure is not None
    assert failure.code == -signal.SIGKILL
    wait_for(lambda: not member.is_running() or member.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize(("workers", "given", "expected"), [(1, None, "none"), (2, None, "share"), (2, "5", "5")])
def test_members_share_the_cores_unless_told_otherwise(
    workers: int, given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    recorder = Recorder()
    env = {} if given is None else {"OMP_NUM_THREADS": given}
    spec = GangSpec(python("import os; print(os.environ.get('OMP_NUM_THREADS', 'none'))"), workers, env=env)
    LocalEngine().start(spec, on_line=recorder).wait(PATIENCE_S)
    share = str(max(len(os.sched_getaffinity(0)) // workers, 1))
    assert recorder.texts(0) == [share if expected == "share" else expected]


@pytest.fixture
def pretended_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that records its arguments and does what sshd does with the rest: hand it to a shell."""
    script = tmp_path / "pretended ssh"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        f"with open({str(tmp_path / 'calls')!r}, 'a') as file:\n"
        "    file.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "for name in [n for n in os.environ if n.startswith('TREK_')]: del os.environ[name]\n"
        "os.execvp('sh', ['sh', '-c', ' '.join(sys.argv[-1:])])\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TREK_SSH", f"'{script}' -p 2222")
    return tmp_path / "calls"


def test_other_hosts_run_the_same_command_with_the_same_environment(
    pretended_ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREK_SECRET", 'hunter\'s "2"')
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node-b slots=1\nnode-a slots=2\n")
    recorder = Recorder()
    code = """
        import json, os
        names = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MINE", "TREK_SECRET"]
        print(json.dumps([os.environ[name] for name in names] + [os.getcwd()]))
    """
    spec = GangSpec(python(code), 3, env={"MINE": "a b"}, cwd=tmp_path, hostfile=hostfile)
    gang = LocalEngine().start(spec, on_line=recorder, on_exit=recorder)
    exits = gang.wait(PATIENCE_S)
    assert exits is not None
    assert {(one.rank, one.host, one.code) for one in exits} == {
        (0, "node-b", 0),
        (1, "node-a", 0),
        (2, "node-a", 0),
    }
    places = [json.loads(recorder.texts(rank)[0]) for rank in range(3)]
    assert [place[:3] for place in places] == [["0", "0", "1"], ["1", "0", "2"], ["2", "1", "2"]]
    assert len({tuple(place[3:]) for place in places}) == 1
    assert places[0][3] == "node-b"
    assert places[0][5:] == ["a b", 'hunter\'s "2"', str(tmp_path.resolve())]
    calls = [json.loads(line) for line in pretended_ssh.read_text().splitlines()]
    assert sorted(call[-2] for call in calls) == ["node-a", "node-a", "node-b"]
    assert all(call[:2] == ["-p", "2222"] for call in calls)
    assert "hunter" not in pretended_ssh.read_text()


@pytest.mark.usefixtures("pretended_ssh")
def test_members_on_other_hosts_are_stopped_too(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node-a\nnode-b\n")
    gang = LocalEngine().start(GangSpec(python("import time; time.sleep(600)"), 2, hostfile=hostfile))
    pids = list(gang.pids.values())
    os.kill(pids[1], signal.SIGKILL)
    failure = gang.wait_first_failure(PATIENCE_S)
    assert failure is not None
    assert (failure.rank, failure.host, failure.code) == (1, "node-b", -signal.SIGKILL)
    gang.stop(grace_s=5)
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.usefixtures("pretended_ssh")
def test_members_on_other_hosts_are_given_files_while_they_run(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node-a\nnode-b\n")
    command = ["sh", "-c", 'while [ ! -e "$TREK_MEMBER_DIR/word" ]; do sleep 0.05; done; cat "$TREK_MEMBER_DIR/word"']
    recorder = Recorder()
    gang = LocalEngine().start(GangSpec(command, 2, hostfile=hostfile), on_line=recorder)
    gang.write_file("word", b"given\n")
    gang.wait(PATIENCE_S)
    assert recorder.texts(0) == recorder.texts(1) == ["given"]
    assert gang.read_file("word", rank=0) is None, "it is not what the member left"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_member_of_another_user_can_read_what_it_is_given_while_it_runs(is_kept: bool) -> None:
    nobody = pwd.getpwnam("nobody")
    user = OsUser("nobody", nobody.pw_uid, nobody.pw_gid, (nobody.pw_gid,))
    command = ["sh", "-c", 'until cat "$TREK_MEMBER_DIR/word" 2>/dev/null; do sleep 0.05; done; id -un']
    recorder, mask = Recorder(), os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="trek-test-") as folder:
        try:
            Path(folder).chmod(0o711)
            out = Path(folder) / "out" if is_kept else None
            spec = GangSpec(command, 1, user=user, cwd=Path("/"), output_dir=out)
            gang = LocalEngine().start(spec, on_line=recorder)
            if out is not None:
                out.chmod(0o711)
            assert gang.pids
            gang.write_file("word", b"given\n")
            assert [one.code for one in gang.wait(PATIENCE_S) or []] == [0]
            gang.stop()  # its agent, too, has written its last
        finally:
            os.umask(mask)
        assert recorder.texts(0) == ["given", "nobody"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
def test_neither_a_member_of_another_user_nor_its_agent_has_the_environment_of_the_starter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "CANARY")
    nobody = pwd.getpwnam("nobody")
    user = OsUser("nobody", nobody.pw_uid, nobody.pw_gid, (nobody.pw_gid,))
    spec = GangSpec(["sleep", "600"], 1, user=user, cwd=Path("/"), inherits=["PATH"], env={"OWN": "1"})
    gang = LocalEngine().start(spec)
    try:
        wait_for(lambda: bool(gang.pids) and Path(f"/proc/{gang.pids[0]}/comm").read_text() == "sleep\n")
        own = Path(f"/proc/{gang.pids[0]}")
        agent = own.parent / own.joinpath("stat").read_text().rpartition(")")[2].split()[1]
        assert b"OWN=1" in (own / "environ").read_bytes()
        assert [b"CANARY" in (one / "environ").read_bytes() for one in (own, agent)] == [False, False]
    finally:
        gang.stop(grace_s=0)


def test_a_host_that_cannot_be_reached_is_a_failure_with_sshs_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho 'ssh: no route to host' >&2\nexit 255\n")
    script.chmod(0o755)
    monkeypatch.setenv("TREK_SSH", str(script))
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node-a\n")
    gang = LocalEngine().start(GangSpec(["true"], 1, hostfile=hostfile))
    failure = gang.wait_first_failure(PATIENCE_S)
    assert failure is not None
    assert (failure.code, failure.last_lines) == (255, ("ssh: no route to host",))


def test_output_dir_and_other_hosts_exclude_each_other(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("node-a\n")
    with pytest.raises(InputError, match="this machine only"):
        LocalEngine().start(GangSpec(["true"], 1, hostfile=hostfile, output_dir=tmp_path))

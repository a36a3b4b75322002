"""What every Engine must do, as tests: subclass `EngineConformance` and give it a fixture named `engine`.

    class TestMyEngine(EngineConformance):
        @pytest.fixture
        def engine(self) -> Engine:
            return MyEngine()

Times are asserted generously, since a busy machine decides nothing; `benchmarks/engines` measures them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from trek.engines import Engine, Exit, Gang, GangSpec, OutputLine, Role
from trek.errors import InputError
from trek.testing.gang_promises import GangPromises
from trek.testing.recorded_gang import IMPORTS, NOTICE_S, PATIENCE_S, Recorder, python, wait_for


class EngineConformance(GangPromises):
    """The tests. Each starts real processes."""

    def test_every_member_reads_its_own_world(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                from trek.world import World
                world = World.from_env()
                print(world.rank, world.size, world.local_rank, world.local_size, world.master_port)
            """),
            3,
        )
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert sorted((one.rank, one.code) for one in exits) == [(0, 0), (1, 0), (2, 0)]
        ports = set()
        for rank in range(3):
            *place, port = recorder.texts(rank)[0].split()
            assert place == [str(rank), "3", str(rank), "3"]
            ports.add(port)
        assert len(ports) == 1

    def test_torchruns_variables_are_there(self, engine: Engine, recorder: Recorder) -> None:
        names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
        gang = self._start(engine, recorder, python(f"import os; [os.environ[name] for name in {names}]"))
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert exits[0].code == 0, exits[0].last_lines

    def test_environment_and_working_directory_are_honoured(
        self, engine: Engine, recorder: Recorder, tmp_path: Path
    ) -> None:
        value = "spaces, 'quotes' and $(nothing run)\nand lines"
        gang = self._start(
            engine,
            recorder,
            python("import json, os; print(json.dumps([os.environ['MINE'], os.getcwd()]))"),
            env={"MINE": value},
            cwd=tmp_path,
        )
        gang.wait(PATIENCE_S)
        assert json.loads(recorder.texts(0)[0]) == [value, str(tmp_path.resolve())]

    def test_lines_come_in_order_and_the_exit_comes_last(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import sys
                for number in range(2000):
                    print(number)
                print("to stderr", file=sys.stderr)
                print("no newline", end="")
            """),
        )
        gang.wait(PATIENCE_S)
        assert recorder.texts(0) == [*map(str, range(2000)), "no newline"]
        assert recorder.texts(0, "stderr") == ["to stderr"]
        assert isinstance(recorder.news[-1], Exit)

    def test_an_exit_carries_code_and_last_error_lines(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import sys; print('why', file=sys.stderr); sys.exit(7)"))
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert exits[0].code == 7
        assert exits[0].last_lines[-1] == "why"
        assert exits[0].pid > 0

    def test_a_death_is_noticed_while_the_others_live(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import time; time.sleep(600)"), 2)
        try:
            os.kill(gang.pids[1], signal.SIGKILL)
            began = time.monotonic()
            failure = gang.wait_first_failure(PATIENCE_S)
            assert time.monotonic() - began < NOTICE_S
            assert failure is not None
            assert (failure.rank, failure.code) == (1, -signal.SIGKILL)
            assert set(gang.pids) == {0}
        finally:
            gang.stop(grace_s=1)

    def test_a_death_is_noticed_though_a_grandchild_holds_the_pipe(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import subprocess, sys
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                sys.exit(5)
            """),
        )
        began = time.monotonic()
        failure = gang.wait_first_failure(PATIENCE_S)
        assert failure is not None
        assert failure.code == 5
        assert time.monotonic() - began < PATIENCE_S / 2
        gang.stop(grace_s=1)

    def test_no_failure_when_all_end_well(self, engine: Engine, recorder: Recorder) -> None:
        assert self._start(engine, recorder, python("pass"), 2).wait_first_failure(PATIENCE_S) is None

    def test_waiting_gives_none_when_the_time_runs_out(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import time; time.sleep(600)"))
        assert gang.wait(0.05) is None
        assert gang.wait_first_failure(0.05) is None
        gang.stop(grace_s=1)

    def test_stop_lets_a_member_clean_up(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import signal, sys, time
                def leave(*_):
                    print("cleaned up")
                    sys.exit(0)
                signal.signal(signal.SIGTERM, leave)
                print("ready")
                time.sleep(600)
            """),
        )
        wait_for(lambda: recorder.texts(0) == ["ready"])
        gang.stop(grace_s=PATIENCE_S)
        assert recorder.texts(0) == ["ready", "cleaned up"]
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert exits[0].code == 0

    def test_stop_kills_who_does_not_listen(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import signal, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                print("ready")
                time.sleep(600)
            """),
        )
        wait_for(lambda: recorder.texts(0) == ["ready"])
        gang.stop(grace_s=0.1)
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert exits[0].code == -signal.SIGKILL

    def test_a_stopped_member_is_no_failure_and_stopping_twice_is_fine(
        self, engine: Engine, recorder: Recorder
    ) -> None:
        gang = self._start(engine, recorder, python("import time; time.sleep(600)"), 2)
        gang.stop(grace_s=PATIENCE_S)
        gang.stop()
        assert gang.wait_first_failure(PATIENCE_S) is None
        assert gang.pids == {}

    def test_stop_leaves_no_grandchild_behind(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import subprocess, sys, time
                up = "print('up' + chr(10), end='', flush=True)"  # a whole line at once, since three processes write
                code = f"from signal import *; signal(SIGTERM, SIG_IGN); {up}; import time; time.sleep(600)"
                one = subprocess.Popen([sys.executable, "-c", code])
                two = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
                print(f"pids {one.pid} {two.pid}" + chr(10), end="", flush=True)
                time.sleep(600)
            """),
        )
        wait_for(lambda: len(recorder.texts(0)) == 3)
        pids = next(list(map(int, line.split()[1:])) for line in recorder.texts(0) if line.startswith("pids"))
        gang.stop(grace_s=0.5)
        wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))

    def test_a_gang_grows_and_shrinks(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine, recorder, python("import os, time; print(os.environ['WORLD_SIZE']); time.sleep(600)"), 2
        )
        wait_for(lambda: recorder.texts(1) == ["2"])
        before = gang.pids
        gang.resize(3)
        wait_for(lambda: recorder.texts(2) == ["3"])
        assert gang.num_workers == 3
        assert {rank: pid for rank, pid in gang.pids.items() if rank < 2} == before
        gang.resize(1)
        assert gang.num_workers == 1
        assert gang.pids == {0: before[0]}
        assert gang.wait_first_failure(0.05) is None
        gang.stop(grace_s=1)

    def test_a_member_is_started_anew_in_the_place_of_a_dead_one(self, engine: Engine, recorder: Recorder) -> None:
        """As the same rank, with the same World; the others go on, and the gang has not failed."""
        command = python("import os, time; print(os.environ['RANK'], os.environ['WORLD_SIZE']); time.sleep(600)")
        gang = self._start(engine, recorder, command, 2)
        wait_for(lambda: recorder.texts(1) == ["1 2"])
        before = gang.pids
        os.kill(before[1], signal.SIGKILL)
        wait_for(lambda: any(isinstance(news, Exit) for news in recorder.news))
        gang.restart(1)
        wait_for(lambda: recorder.texts(1) == ["1 2"] * 2)
        assert gang.pids[0] == before[0]
        assert gang.pids[1] != before[1]
        assert gang.num_workers == 2
        assert gang.wait_first_failure(0.05) is None
        gang.stop(grace_s=1)

    def test_a_member_that_hangs_is_killed_and_started_anew(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import time; print('here', flush=True); time.sleep(600)"))
        wait_for(lambda: recorder.texts(0) == ["here"])
        before = gang.pids[0]
        os.kill(before, signal.SIGSTOP)
        gang.restart(0)
        wait_for(lambda: recorder.texts(0) == ["here"] * 2)
        assert not psutil.pid_exists(before)
        gang.stop(grace_s=1)

    def test_a_member_can_be_killed_and_the_others_go_on(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import time; print('here', flush=True); time.sleep(600)"), 2)
        wait_for(lambda: recorder.texts(1) == ["here"])
        before = gang.pids
        gang.kill(1)
        assert gang.pids == {0: before[0]}
        assert not psutil.pid_exists(before[1])
        assert gang.wait_first_failure(0.05) is None
        gang.kill(1)  # it has ended already
        gang.restart(1)
        wait_for(lambda: recorder.texts(1) == ["here"] * 2)
        gang.stop(grace_s=1)

    def test_a_command_that_does_not_exist_is_an_exit(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, ["no-such-command-anywhere"])
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert exits[0].code == 127
        assert "no-such-command-anywhere" in exits[0].last_lines[-1]

    def test_a_callback_may_stop_the_gang(self, engine: Engine) -> None:
        gangs: list[Gang] = []

        def stop(_: OutputLine) -> None:
            wait_for(lambda: bool(gangs))
            gangs[0].stop(grace_s=1)

        spec = GangSpec(python("import time; print('enough', flush=True); time.sleep(600)"), 2, imports=IMPORTS)
        gangs.append(engine.start(spec, on_line=stop))
        assert gangs[0].wait(PATIENCE_S) is not None
        gangs[0].stop()

    def test_a_callback_that_raises_is_heard_of(self, engine: Engine) -> None:
        def refuse(_: OutputLine) -> None:
            raise LookupError("the callback's own")

        gang = engine.start(GangSpec(python("print(1)"), 1, imports=IMPORTS), on_line=refuse)
        with pytest.raises(LookupError, match="the callback's own"):
            gang.wait(PATIENCE_S)

    def test_no_workers_are_refused(self, engine: Engine) -> None:
        with pytest.raises(InputError, match="at least 1"):
            engine.start(GangSpec(["true"], 0))

    def test_more_gpus_than_there_are_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InputError, match="GPU"):
            engine.start(GangSpec(["true"], 1, gpus_per_worker=1000))

    def test_there_is_at_least_one_slot(self, engine: Engine) -> None:
        assert engine.slots() >= 1

    def test_placements_tell_where_members_run(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import time; time.sleep(600)"), 2)
        places = gang.placements
        assert [(place.role, place.rank) for place in places] == [("worker", 0), ("worker", 1)]
        assert {place.rank: place.pid for place in places} == gang.pids
        assert all(place.host and place.devices for place in places)
        assert gang.used_nodes == {place.node for place in places}
        assert gang.used_nodes <= {node.id for node in engine.nodes()}
        gang.stop(grace_s=1)
        assert gang.placements == []

    def test_a_member_finds_its_files_and_leaves_an_outcome(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(
            engine,
            recorder,
            python("""
                import os
                from trek.engines.member_folder import MemberFolder
                folder = MemberFolder.from_env()
                given = folder.read("given.bin")
                folder.write("more.bin", given * 1000)
                folder.write_outcome({"rank": os.environ["RANK"], "size": len(given)})
                raise SystemExit(3)
            """),
            2,
            files={"given.bin": b"\0\n\xff" * 10},
        )
        gang.wait(PATIENCE_S)
        assert gang.outcomes() == {0: {"rank": "0", "size": 30}, 1: {"rank": "1", "size": 30}}
        assert gang.read_file("more.bin", rank=1) == b"\0\n\xff" * 10_000
        assert gang.read_file("never.bin", rank=1) is None
        gang.stop()
        assert gang.outcomes().keys() == {0, 1}, "an outcome outlives its member"

    def test_a_file_is_given_to_members_that_run(self, engine: Engine, recorder: Recorder) -> None:
        code = """
            import time
            from trek.engines.member_folder import MemberFolder
            folder = MemberFolder.from_env()
            print(folder.read("word").decode(), flush=True)
            while folder.read("word") == b"first": time.sleep(0.01)
            print(len(folder.read("word")), folder.read("word") == bytes(range(256)) * 1000)
        """
        server = Role(python(code), 1, outlives_workers=True)
        given = {"files": {"word": b"first"}, "roles": {"server": server}}
        gang = self._start(engine, recorder, python(code), 2, **given)
        wait_for(lambda: len([one for one in recorder.news if isinstance(one, OutputLine)]) == 3)
        gang.write_file("word", bytes(range(256)) * 1000)
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert [one.code for one in exits] == [0, 0, 0], exits
        told = sorted(one.text for one in recorder.news if isinstance(one, OutputLine))
        assert told == ["256000 True"] * 3 + ["first"] * 3
        gang.write_file("word", b"to nobody")
        assert gang.read_file("word", rank=0) != b"to nobody"

    def test_a_member_without_an_outcome_has_none(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("import os; os._exit(7)"))
        gang.wait(PATIENCE_S)
        assert gang.outcomes() == {}

    def test_members_answer_when_asked_and_may_be_asked_again(self, engine: Engine, recorder: Recorder) -> None:
        code = """
            import os, time
            from trek.engines.member_folder import MemberFolder
            folder, count = MemberFolder.from_env(), 0
            print("ready")
            while True:
                if os.environ["RANK"] == "0" and folder.is_asked:
                    count += 1
                    folder.answer({"count": count})
                time.sleep(0.01)
        """
        gang = self._start(engine, recorder, python(code), 2)
        wait_for(lambda: recorder.texts(0) == recorder.texts(1) == ["ready"])
        assert gang.ask(timeout_s=1.0) == {0: {"count": 1}}, "rank 1 does not listen"
        assert gang.ask(timeout_s=1.0) == {0: {"count": 2}}
        gang.stop(grace_s=1)

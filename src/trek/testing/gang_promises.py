"""What every Engine must do about roles, and about gangs that are found again; a part of `EngineConformance`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trek.engines import Engine, Gang, GangSpec, OutputLine, Role
from trek.errors import InputError
from trek.testing.recorded_gang import IMPORTS, PATIENCE_S, Recorder, python, wait_for


class GangPromises:
    """The tests. Each starts real processes."""

    @pytest.fixture
    def engine(self) -> Engine:
        """The engine under test."""
        raise NotImplementedError("give the subclass a fixture named engine")

    @pytest.fixture
    def recorder(self) -> Recorder:
        """Takes lines and exits."""
        return Recorder()

    def _start(
        self, engine: Engine, recorder: Recorder, command: list[str], num_workers: int = 1, **more: object
    ) -> Gang:
        spec = GangSpec(command, num_workers, imports=IMPORTS, **more)  # type: ignore[arg-type]
        return engine.start(spec, on_line=recorder, on_exit=recorder)

    def test_a_gang_has_roles(self, engine: Engine, recorder: Recorder) -> None:
        """Two workers ask one server, which goes on until they have ended."""
        server = python("""
            import os, socket
            assert "RANK" not in os.environ
            host, port = os.environ["TREK_SERVER_ADDRESSES"].split(",")[int(os.environ["TREK_ROLE_RANK"])].split(":")
            with socket.create_server((host, int(port))) as listener:
                print("serving", os.environ["TREK_ROLE"], os.environ["TREK_ROLE_SIZE"], os.environ["MINE"])
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.sendall(b"hello " + client.recv(100))
        """)
        worker = python("""
            import os, socket, time
            host, _, port = os.environ["TREK_SERVER_ADDRESSES"].partition(":")
            while True:
                try:
                    client = socket.create_connection((host, int(port)))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            with client:
                client.sendall(os.environ["RANK"].encode())
                print(client.recv(100).decode(), os.environ["WORLD_SIZE"], os.environ["TREK_ROLE"])
        """)
        roles = {"server": Role(server, 1, env={"MINE": "yes"})}
        gang = self._start(engine, recorder, worker, 2, roles=roles)
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert sorted((one.role, one.rank) for one in exits) == [("server", 0), ("worker", 0), ("worker", 1)]
        assert exits[-1].role == "server"
        assert gang.wait_first_failure(0) is None, "a server is stopped after its workers"
        assert gang.num_workers == 2
        lines = {(n.role, n.rank, n.text) for n in recorder.news if isinstance(n, OutputLine)}
        assert lines == {
            ("server", 0, "serving server 1 yes"),
            ("worker", 0, "hello 0 2 worker"),
            ("worker", 1, "hello 1 2 worker"),
        }

    def test_a_role_that_fails_is_a_failure_of_the_gang(self, engine: Engine, recorder: Recorder) -> None:
        roles = {"server": Role(python("raise SystemExit(6)"), 1)}
        gang = self._start(engine, recorder, python("import time; time.sleep(600)"), roles=roles)
        failure = gang.wait_first_failure(PATIENCE_S)
        assert failure is not None
        assert (failure.role, failure.rank, failure.code) == ("server", 0, 6)
        gang.stop(grace_s=1)

    def test_a_role_grows_and_shrinks(self, engine: Engine, recorder: Recorder) -> None:
        sleep = python("import os, time; print(os.environ['TREK_SERVER_ADDRESSES'].count(':')); time.sleep(600)")
        gang = self._start(engine, recorder, sleep, roles={"server": Role(sleep, 1)})
        gang.resize(2, role="server")
        places = [(place.role, place.rank) for place in gang.placements]
        assert places == [("worker", 0), ("server", 0), ("server", 1)]
        wait_for(
            lambda: ("server", 1, "2") in {(n.role, n.rank, n.text) for n in recorder.news if isinstance(n, OutputLine)}
        )
        gang.resize(1, role="server")
        assert [(place.role, place.rank) for place in gang.placements] == [("worker", 0), ("server", 0)]
        assert gang.wait_first_failure(0.05) is None
        gang.stop(grace_s=1)

    def test_a_gang_is_found_again_by_its_handle(self, engine: Engine, recorder: Recorder, tmp_path: Path) -> None:
        code = """
            import os, time
            from trek.engines.member_folder import MemberFolder
            folder = MemberFolder.from_env()
            print("up")
            while not folder.read("go"): time.sleep(0.01)
            folder.write_outcome({"said": "bye"})
            print("down", end="")
        """
        spec = GangSpec(python(code), 2, output_dir=tmp_path / "out", imports=IMPORTS)
        first = engine.start(spec)
        pids = first.pids
        assert first.handle == engine.handle_of(spec)
        handle = json.loads(json.dumps(first.handle))
        first.detach()
        gang = engine.attach(handle, on_line=recorder, on_exit=recorder)
        assert gang.pids == pids
        assert [place.devices for place in gang.placements] != []
        wait_for(lambda: [line.text for line in gang.read_log(1)] == ["up"])
        assert gang.read_file("outcome.json", rank=0) is None
        gang.write_file("go", b"go")
        exits = gang.wait(PATIENCE_S)
        assert exits is not None
        assert [one.code for one in exits] == [0, 0]
        assert recorder.texts(0) == ["up", "down"]
        assert gang.outcomes() == {0: {"said": "bye"}, 1: {"said": "bye"}}
        first_line, last = gang.read_log(1)
        assert (first_line.text, last.text) == ("up", "down")
        assert gang.read_log(1, first_line.end) == [last]
        assert gang.read_log(1, last.end) == []
        gang.stop()

    def test_attaching_to_what_was_never_started_is_refused(self, engine: Engine, tmp_path: Path) -> None:
        handle = engine.handle_of(GangSpec(["true"], 1, output_dir=tmp_path / "never"))
        with pytest.raises(InputError, match="no gang"):
            engine.attach(handle)

    def test_a_gang_that_dies_with_its_starter_has_no_handle(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("pass"))
        assert gang.handle is None
        with pytest.raises(InputError, match="cannot be detached"):
            gang.detach()
        gang.wait(PATIENCE_S)
        with pytest.raises(InputError, match="keeps no logs"):
            gang.read_log(0)

    def test_an_unknown_member_is_refused(self, engine: Engine, recorder: Recorder) -> None:
        gang = self._start(engine, recorder, python("pass"))
        with pytest.raises(InputError, match="no server with rank 0"):
            gang.read_file("x", rank=0, role="server")
        with pytest.raises(InputError, match="no role 'server'"):
            gang.resize(2, role="server")
        gang.stop()

    @pytest.mark.parametrize("name", ["", "Server", "a-b", "1st"])
    def test_a_role_with_an_invalid_name_is_refused(self, engine: Engine, name: str) -> None:
        with pytest.raises(InputError, match="not a valid name"):
            engine.start(GangSpec(["true"], 1, roles={name: Role(["true"], 1)}))

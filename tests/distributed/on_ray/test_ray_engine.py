"""The ray engine on a real cluster of three raylets: the conformance suite, and what only it promises."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'trek-ml[ray]'")

from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
from ray.experimental.internal_kv import _internal_kv_get

from trek._version import __version__
from trek.engines import Engine, Exit, GangSpec
from trek.engines.failure import find_unreached
from trek.engines.ray.ray_engine import RayEngine
from trek.errors import InputError, OutsideError, StartCancelled
from trek.testing.engine_conformance import EngineConformance
from trek.testing.ray_cluster import RayCluster, can_hide_folders
from trek.testing.recorded_gang import PATIENCE_S, Recorder, python, wait_for


class TestRayEngine(EngineConformance):
    @pytest.fixture
    def engine(self, cluster: RayCluster) -> Engine:
        return RayEngine(address=cluster.address, warm_start=False)


def test_a_node_that_is_killed_is_reported_and_leaves_no_process(cluster: RayCluster) -> None:
    node = cluster.add_node(doomed=1)
    engine = RayEngine(address=cluster.address, resources={"doomed": 1}, warm_start=False)
    gang = engine.start(GangSpec(python("import time; time.sleep(600)"), 1))
    try:
        pid = gang.pids[0]
        cluster.kill_node(node)
        failure = gang.wait_first_failure(PATIENCE_S)
        assert failure is not None
        assert (failure.rank, failure.code, failure.is_unreached) == (0, -signal.SIGKILL, True)
        error = find_unreached(failure)
        assert error is not None
        assert "was lost while rank 0 was running there: Ray lost the actor" in str(error)
        assert "ssh" not in str(error)
        wait_for(lambda: not psutil.pid_exists(pid))
    finally:
        gang.stop(grace_s=0)


def test_a_node_that_dies_while_a_gang_starts_is_no_failure_of_the_gang(cluster: RayCluster) -> None:
    """Its place was reserved there; no member ran yet, so it is placed anew, and waits for room that comes back."""
    recorder = Recorder()
    node = cluster.add_node(doomed=1)
    before = set(cluster.processes(node))
    engine = RayEngine(address=cluster.address, resources={"doomed": 1}, warm_start=False)

    def run() -> list[Exit] | None:
        return engine.start(GangSpec(python("print('here')"), 1), on_line=recorder).wait(PATIENCE_S)

    with cluster.leaving_nothing(), ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        wait_for(lambda: bool(set(cluster.processes(node)) - before))
        for process in set(cluster.processes(node)) - before:
            process.suspend()  # the actor's process has just been started, and never answers
        cluster.kill_node(node, with_workers=True)
        other = cluster.add_node(doomed=1)
        assert [one.code for one in running.result() or []] == [0]
    cluster.kill_node(other)
    assert recorder.texts(0) == ["here"]


def test_members_die_with_a_starter_that_was_killed_and_kept_ones_are_found_again(
    cluster: RayCluster, tmp_path: Path
) -> None:
    lost = _start_then_kill(cluster.address, "", seconds=600)
    kept = _start_then_kill(cluster.address, str(tmp_path), seconds=2)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in lost))
    recorder = Recorder()
    gang = RayEngine(address=cluster.address).attach(str(tmp_path), on_line=recorder, on_exit=recorder)
    exits = gang.wait(PATIENCE_S)
    assert exits is not None
    assert [(one.pid, one.code) for one in sorted(exits, key=lambda one: one.rank)] == [(pid, 4) for pid in kept]
    assert recorder.texts(0) == recorder.texts(1) == ["up", "done"]
    gang.stop()
    again = RayEngine(address=cluster.address).attach(str(tmp_path))
    assert [one.code for one in again.wait(PATIENCE_S) or []] == [4, 4], "what has come home is found without actors"
    assert [line.text for line in again.read_log(1)] == ["up", "done"]


def _start_then_kill(address: str, output_dir: str, *, seconds: float) -> list[int]:
    command = [sys.executable, "-c", _STARTER.replace("{seconds}", str(seconds)), address, output_dir]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    # Ray prints what it hears of nodes that died, those of earlier tests included, in between.
    told = next(line for line in starter.stdout if line.startswith(b"pids "))
    pids = [int(part) for part in told.split()[1:]]
    starter.kill()
    starter.wait()
    starter.stdout.close()
    return pids


_STARTER = """
import sys, time
from pathlib import Path
from trek.engines import GangSpec, open_engine
output_dir = Path(sys.argv[2]) if sys.argv[2] else None
code = "import time; print('up'); time.sleep({seconds}); print('done'); raise SystemExit(4)"
spec = GangSpec([sys.executable, "-uc", code], 2, output_dir=output_dir)
gang = open_engine("ray", {"address": sys.argv[1]}).start(spec)
print("pids", *gang.pids.values(), flush=True)
time.sleep(600)
"""


def test_members_run_where_the_rule_says_and_know_their_nodes(cluster: RayCluster) -> None:
    recorder = Recorder()
    engine = RayEngine(address=cluster.address, placement="STRICT_SPREAD", warm_start=False)
    names = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR"]
    command = python(f"import os; print(*[os.environ[name] for name in {names}])")
    gang = engine.start(GangSpec(command, 3), on_line=recorder)
    gang.wait(PATIENCE_S)
    places = [recorder.texts(rank)[0].split() for rank in range(3)]
    assert [place[:4] for place in places] == [[str(rank), "0", "1", str(rank)] for rank in range(3)]
    assert {place[4] for place in places} < {"127.0.0.2", "127.0.0.3", "127.0.0.4"}


def test_a_cluster_that_is_too_small_says_what_is_missing(cluster: RayCluster) -> None:
    with pytest.raises(InputError, match=r"1 tpu needed, and the cluster has 0 tpu"):
        RayEngine(address=cluster.address, resources={"tpu": 1}).start(GangSpec(["true"], 1))
    with pytest.raises(OutsideError, match=r"no room for 1 workers for 0.1 s: 1 tpu needed"):
        RayEngine(address=cluster.address, resources={"tpu": 1}, wait_s=0.1).start(GangSpec(["true"], 1))


def test_a_gang_that_may_wait_starts_when_a_node_with_room_joins(cluster: RayCluster) -> None:
    recorder = Recorder()
    engine = RayEngine(address=cluster.address, resources={"later": 1}, wait_s=PATIENCE_S, warm_start=False)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(engine.start, GangSpec(python("print('here')"), 1), on_line=recorder)
        node = cluster.add_node(later=1)
        gang = starting.result()
    gang.wait(PATIENCE_S)
    cluster.kill_node(node)
    assert recorder.texts(0) == ["here"]


@pytest.mark.parametrize("least", [None, 1], ids=["fixed", "elastic"])
def test_a_start_that_waits_says_for_what_and_can_be_cancelled(
    cluster: RayCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, least: int | None
) -> None:
    node = cluster.add_node(single=1)
    engine = RayEngine(address=cluster.address, resources={"single": 1}, warm_start=False)
    holder = engine.start(GangSpec(python("import time; time.sleep(600)"), 1))
    spec = GangSpec(["true"], 1, output_dir=tmp_path / "gang", min_workers=least)
    spec.output_dir.mkdir()
    handle = engine.handle_of(spec)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(engine.start, spec)
        wait_for(lambda: engine.start_waits_for(handle))
        wait_for(lambda: "waiting for room on the Ray cluster: " in caplog.text)
        told = engine.start_waits_for(handle)
        assert re.search(r"waits for room on the Ray cluster: .*1 single needed, and .*0 single are free", told)
        engine.cancel_start(handle)
        with pytest.raises(StartCancelled):
            starting.result()
    assert engine.start_waits_for(handle) == ""
    holder.stop(grace_s=0)
    after = engine.start(GangSpec(python("print()"), 1))  # nothing of the cancelled gang holds the room
    after.wait(PATIENCE_S)
    cluster.kill_node(node)


def test_a_gang_that_waits_for_machines_waits_for_nodes_that_are_not_there(cluster: RayCluster, tmp_path: Path) -> None:
    recorder = Recorder()
    spec = GangSpec(python("print('here')"), 1, output_dir=tmp_path / "gang", waits_for_machines=True)
    spec.output_dir.mkdir()
    with pytest.raises(InputError, match="1 absent needed, and the cluster has 0 absent"):
        RayEngine(address=cluster.address, resources={"absent": 1}, wait_s=0).start(spec)
    engine = RayEngine(address=cluster.address, resources={"absent": 1}, warm_start=False)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(engine.start, spec, on_line=recorder)
        wait_for(lambda: "1 absent needed, and the cluster has 0" in engine.start_waits_for(engine.handle_of(spec)))
        node = cluster.add_node(absent=1)
        gang = starting.result()
    gang.wait(PATIENCE_S)
    cluster.kill_node(node)
    assert recorder.texts(0) == ["here"]


def test_room_is_asked_for_and_the_request_withdrawn(cluster: RayCluster) -> None:
    engine = RayEngine(address=cluster.address, cpus=2)
    engine.request_room(3)
    assert _requested_room() == [{"CPU": 2.0}] * 3
    engine.request_room(0)
    assert _requested_room() == []


def _requested_room() -> list[dict[str, float]]:
    """What an autoscaler would read."""
    kept = _internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL)
    return [one.get("resources", one) for one in json.loads(kept)]


@pytest.mark.skipif(not can_hide_folders(), reason="needs root, to mount a small disk")
def test_a_full_disk_here_ends_the_member_whose_output_it_cannot_keep(cluster: RayCluster, tmp_path: Path) -> None:
    """The thread that watches the gang ended with the error, and everybody who waited for the gang hung."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "trek-test", str(small)], check=True)
    try:
        engine = RayEngine(address=cluster.address, warm_start=False)
        command = python("import time\nprint('x' * 4_000_000, flush=True)\ntime.sleep(600)")
        gang = engine.start(GangSpec(command, 1, output_dir=small))
        failure = gang.wait_first_failure(PATIENCE_S)
        assert failure is not None
        assert any("cannot be kept here: [Errno 28] No space left" in line for line in failure.last_lines)
        gang.stop(grace_s=0)
        assert gang.wait(PATIENCE_S) is not None
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_nodes_are_listed_with_their_slots(cluster: RayCluster) -> None:
    nodes = RayEngine(address=cluster.address).nodes()
    assert {(node.address, node.slots) for node in nodes} >= {(f"127.0.0.{one}", 4) for one in (2, 3, 4)}


def test_another_version_of_trek_is_one_error_with_both(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ray_starter", "ray_member"):
        monkeypatch.setattr(f"trek.engines.ray.{module}.__version__", "0.0.7")
    with pytest.raises(InputError, match=rf"has Trek {re.escape(__version__)}, and this process has Trek 0.0.7"):
        RayEngine(address=cluster.address).start(GangSpec(["true"], 1))

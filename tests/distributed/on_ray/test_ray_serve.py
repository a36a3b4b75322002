"""A model on replicas of Ray Serve, asked through the same routes as a local server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'trek-ml[ray]'")

from ray import serve

from trek.data.table import Table
from trek.errors import InputError, TrainingError
from trek.serve.prediction import predict
from trek.serve.server import Server
from trek.testing.ray_cluster import RayCluster
from trek.testing.serving import CODE, train_points
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

pytestmark = pytest.mark.timeout(600)

_FUNCTIONS = '''
import os
import time

import numpy as np


def who(x):
    """The process that answers, and where its code is."""
    if (x == 666).any():
        os._exit(9)
    if (x < 0).any():
        raise ValueError("negative")
    time.sleep(0.01)
    place = np.full(len(x), os.path.dirname(__file__), dtype=object)
    return {"pid": np.full(len(x), os.getpid()), "y": x * 2, "place": place, "together": np.full(len(x), len(x))}


def count(to):
    for number in range(int(to.max())):
        if number == 13:
            raise ValueError("thirteen")
        yield {"number": number}


def broken():
    raise RuntimeError("no such weights")
'''


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "served_on_ray.py").write_text(_FUNCTIONS)
    return folder


@pytest.fixture(scope="module")
def server(cluster: RayCluster, code: Path) -> Iterator[Server]:
    """Two replicas."""
    with _server(cluster, "served_on_ray:who", code, workers=2) as running:
        _wait(lambda: 'trek_serve_workers_ready{version="1"} 2' in _get(running, "/metrics").text)
        _post(running, x=1)  # starts Ray Serve's threads of this process, before the first test looks at threads
        _start_helper_threads(running)
        yield running


def _start_helper_threads(server: Server) -> None:
    """All threads that the server's event loop may ever start: it keeps them, and starts them as they are needed."""
    count = min(32, (os.cpu_count() or 1) + 4)
    met = threading.Barrier(count)

    async def meet() -> None:
        await asyncio.gather(*(asyncio.to_thread(met.wait) for _ in range(count)))

    server._wait_for(meet())


def _server(cluster: RayCluster, model: Any, code: Path, **settings: Any) -> Server:
    return Server(
        model, code=code, port=0, engine="ray", engine_options={"address": cluster.address, "cpus": 0.5}, **settings
    )


def _post(server: Server, path: str = "/predict", **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=120, trust_env=False)


def _get(server: Server, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=120, trust_env=False)


def test_replicas_answer_with_code_that_came_from_here(server: Server, code: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [one.json() for one in pool.map(lambda x: _post(server, x=x), range(64))]
    assert [one["y"] for one in found] == [2 * x for x in range(64)]
    assert len({one["pid"] for one in found}) == 2
    assert str(code) not in {one["place"] for one in found}
    assert max(one["together"] for one in found) > 1


def test_a_request_that_fails_fails_alone(server: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: _post(server, x=x), [1, -1, 2, 3, 4, 5, 6, 7]))
    assert [one.status_code for one in found] == [200, 500, *[200] * 6]
    assert _post(server, wrong=1).status_code == 400
    assert _post(server, "/v2/models/other/infer", x=1).status_code == 404


def test_a_killed_replica_fails_no_request_and_comes_back(server: Server) -> None:
    stopped, failures = threading.Event(), list[str]()

    def ask() -> int:
        done = 0
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
            while not stopped.is_set():
                found = client.post("/predict", json={"x": 1})
                done += 1
                if found.status_code != 200:
                    failures.append(found.text)
        return done

    victim = _post(server, x=1).json()["pid"]
    with ThreadPoolExecutor(5) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        os.kill(victim, signal.SIGKILL)
        _wait(lambda: len({_post(server, x=1).json()["pid"] for _ in range(4)} - {victim}) == 2)
        stopped.set()
        assert min(one.result() for one in asking) > 0
    assert failures == []
    assert _post(server, x=666).status_code == 503  # after three replicas have died over it
    _wait(lambda: _get(server, "/v2/health/ready").status_code == 200)
    assert _post(server, x=3).json()["y"] == 6


@pytest.mark.campaign
def test_versions_come_and_go_while_it_serves(server: Server, code: Path) -> None:
    before = _post(server, x=1).json()["pid"]
    server.load("served_on_ray:count", version="2", weight=0)
    lines = _post(server, "/v2/models/model/versions/2/generate_stream", to=3).text
    assert lines.count('data: {"number"') == 3
    failed = _post(server, "/v2/models/model/versions/2/generate_stream", to=20).text
    assert failed.count('data: {"number"') == 13
    assert "thirteen" in failed
    server.unload("2")
    assert len(_applications()) == 1
    with pytest.raises(InputError, match=r"cannot be loaded: .*no such weights"):
        server.load("served_on_ray:broken", version="1")
    assert _post(server, x=1).json()["y"] == 2
    server.reload()
    assert _post(server, x=1).json()["pid"] != before


def test_a_checkpoint_is_served_and_leaves_nothing_behind(cluster: RayCluster, server: Server, tmp_path: Path) -> None:
    rows = np.random.default_rng(3).normal(size=(4, 6)).astype("float32")
    checkpoint = train_points(tmp_path)
    with _server(cluster, checkpoint, CODE, name="points", device="cpu") as running:
        about = _get(running, "/v2/models/points").json()
        assert about["inputs"] == [{"name": "input_0", "datatype": "FP32", "shape": [-1, 6]}]
        records = [{"input_0": row.tolist()} for row in rows]
        found = httpx.post(f"{running.url}/predict", json=records, timeout=60, trust_env=False).json()
    expected = CheckpointFolder(checkpoint).load_model(PointsTrial)(torch.from_numpy(rows)).detach().numpy()
    assert np.allclose([row["output"] for row in found], expected, atol=1e-6)
    assert [name for name in _applications() if "points" in name] == []


def test_what_the_cluster_cannot_hold_is_one_error(cluster: RayCluster, server: Server, code: Path) -> None:
    with pytest.raises(InputError, match=r"100 replicas with 0\.5 CPU each do not fit"):
        _server(cluster, "served_on_ray:who", code, workers=100).start()


@pytest.mark.parametrize("option", ["nosuch", "placement"])
def test_an_engine_option_without_effect_is_one_error(code: Path, option: str) -> None:
    with pytest.raises(InputError, match=rf"engine option '{option}' does not exist here\. Use one of: address, cpus"):
        Server("served_on_ray:who", code=code, port=0, engine="ray", engine_options={option: 1}).start()


def test_an_application_whose_command_was_killed_is_removed(cluster: RayCluster, server: Server, code: Path) -> None:
    command = [sys.executable, "-m", "trek", "serve", "served_on_ray:who", "--engine", "ray", "--name", "orphan"]
    options = ["--engine-option", f"address={cluster.address}", "--engine-option", "cpus=0.5", "--port", "0"]
    with subprocess.Popen([*command, *options], cwd=code, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            url = line.partition(" at ")[2].split()[0]
            assert httpx.post(f"{url}/predict", json={"x": 4}, timeout=60, trust_env=False).json()["y"] == 8
            assert any("orphan" in name for name in _applications())
        finally:
            process.kill()
    _wait(lambda: not any("orphan" in name for name in _applications()))


def test_rows_are_predicted_by_tasks_and_the_file_is_that_of_a_local_run(cluster: RayCluster, tmp_path: Path) -> None:
    """Of a checkpoint that the nodes get from here; killed in between, it goes on with the chunks that are missing."""
    checkpoint = train_points(tmp_path / "run")
    rows = np.random.default_rng(5).normal(size=(500, 6)).astype("float32")
    table = Table.of({"id": np.arange(500), "input_0": rows})
    settings: dict[str, Any] = {"code": CODE, "chunk_rows": 60, "show_progress": False}
    here = predict(checkpoint, table, tmp_path / "here.parquet", **settings)
    on_ray = {"engine": "ray", "engine_options": {"address": cluster.address}, "workers": 2}
    there = predict(checkpoint, table, tmp_path / "there.parquet", **settings, **on_ray)
    assert there.read_bytes() == here.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.parquet", "run", "there.parquet", "trek-home"]


def test_chunks_on_ray_that_were_written_are_not_computed_again(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(_COUNTED.format(folder=str(tmp_path)))
    table = Table.of({"x": np.arange(40)})
    settings: dict[str, Any] = {"code": tmp_path, "chunk_rows": 10, "show_progress": False, "engine": "ray"}
    settings |= {"engine_options": {"address": cluster.address}, "workers": 1}
    (tmp_path / "fails").touch()
    with pytest.raises(TrainingError, match="not yet"):
        predict("counted:double", table, tmp_path / "out.parquet", **settings)
    (tmp_path / "fails").unlink()
    done = predict("counted:double", table, tmp_path / "out.parquet", **settings)
    assert pq.read_table(done).column("y").to_pylist() == [2 * x for x in range(40)]
    calls = [int(line) for line in (tmp_path / "calls.txt").read_text().split()]
    assert sorted(calls) in ([0, 10, 20, 20, 30], [0, 10, 10, 20, 20, 30])  # the second may have waited to be written
    with pytest.raises(InputError, match="engine option 'placement' does not exist here"):
        predict("counted:double", table, tmp_path / "x", **{**settings, "engine_options": {"placement": "PACK"}})


_COUNTED = """
from pathlib import Path

def double(x):
    with Path("{folder}/calls.txt").open("a") as file:
        file.write(f"{{x[0]}}\\n")
    if x[0] == 20 and Path("{folder}/fails").exists():
        raise RuntimeError("not yet")
    return {{"y": x * 2}}
"""


def _applications() -> list[str]:
    return list(serve.status().applications)


def _wait(is_true: Callable[[], bool], *, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)

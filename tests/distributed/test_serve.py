"""Servers with real worker processes, spoken to over loopback."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch

from trek.errors import InputError, OutsideError
from trek.serve.batch_client import batch_inference
from trek.serve.server import Server
from trek.testing.serving import CODE, train_points
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

ROWS = np.random.default_rng(3).normal(size=(4, 6)).astype("float32")
FUNCTIONS = "trek.testing.served_functions"


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint."""
    return train_points(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="module")
def site(points: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server of the checkpoint, with small limits."""
    log = str(tmp_path_factory.mktemp("log") / "access.jsonl")
    with (
        Server(points, code=CODE, port=0, name="points", max_body_mb=0.1, access_log=log) as server,
        httpx.Client(base_url=server.url, headers={"x-log": log}, trust_env=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def expected(points: Path) -> Any:
    """What the model gives for ROWS."""
    return CheckpointFolder(points).load_model(PointsTrial)(torch.from_numpy(ROWS)).detach().numpy()


def _records(rows: np.ndarray = ROWS) -> list[dict[str, Any]]:
    return [{"input_0": row.tolist()} for row in rows]


def _v2(rows: np.ndarray = ROWS, **more: Any) -> dict[str, Any]:
    tensor = {"name": "input_0", "shape": list(rows.shape), "datatype": "FP32", "data": rows.reshape(-1).tolist()}
    return {"inputs": [tensor], **more}


def test_the_server_tells_what_the_model_takes_and_returns(site: httpx.Client) -> None:
    found = site.get("/v2/models/points").json()
    assert found["inputs"] == [{"name": "input_0", "datatype": "FP32", "shape": [-1, 6]}]
    assert found["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1, 2]}]
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/points/versions/1/ready", "/docs"):
        assert site.get(path).status_code == 200, path
    assert "/v2/models/{model}/infer" in site.get("/openapi.json").json()["paths"]


def test_every_format_gets_the_models_answer(site: httpx.Client, expected: np.ndarray) -> None:
    plain = site.post("/predict", json=_records()).json()
    assert np.allclose([row["output"] for row in plain], expected)
    assert np.allclose(site.post("/predict", json=_records()[0]).json()["output"], expected[0])
    [output] = site.post("/v2/models/points/infer", json=_v2()).json()["outputs"]
    assert np.allclose(output["data"], expected.reshape(-1))
    file = io.BytesIO()
    np.save(file, ROWS)
    npy = site.post("/predict", content=file.getvalue(), headers={"content-type": "application/x-npy"})
    assert np.allclose(np.load(io.BytesIO(npy.content)), expected)
    table = pa.table({"input_0": pa.array(ROWS.tolist())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    arrow = pa.ipc.open_stream(site.post("/predict", content=sink.getvalue().to_pybytes(), headers=kind).content)
    assert np.allclose(arrow.read_all().column("output").combine_chunks().to_numpy_ndarray(), expected)


def test_binary_tensors_come_back_bit_by_bit(site: httpx.Client, expected: np.ndarray) -> None:
    head = json.dumps(
        {
            "inputs": [
                {"name": "input_0", "shape": [4, 6], "datatype": "FP32", "parameters": {"binary_data_size": 96}}
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    found = site.post(
        "/v2/models/points/versions/1/infer",
        content=head + ROWS.tobytes(),
        headers={"Inference-Header-Content-Length": str(len(head))},
    )
    at = int(found.headers["inference-header-content-length"])
    assert np.allclose(np.frombuffer(found.content[at:], "float32").reshape(4, 2), expected)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/predict", b"{", {}, 400),
        ("/predict", b'{"input_0": [1]}', {}, 400),
        ("/predict", b"{}", {"content-type": "text/html"}, 415),
        ("/predict", b"{}", {"content-encoding": "gzip"}, 415),
        ("/predict", b" " * 200_000, {}, 413),
        ("/v2/models/points/infer", b"{}", {}, 400),
        ("/v2/models/other/infer", b"{}", {}, 404),
        ("/v2/models/points/versions/9/infer", b"{}", {}, 404),
        ("/predict/stream", b'{"input_0": [1, 2, 3, 4, 5, 6]}', {}, 400),
    ],
)
def test_a_wrong_request_is_told_why(
    site: httpx.Client, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    found = site.post(path, content=body, headers=headers)
    assert found.status_code == status
    assert found.json()["error"].endswith(".")


def test_requests_are_counted_and_logged(site: httpx.Client) -> None:
    site.post("/predict", json=_records())
    site.post("/predict", content=b"{")
    text = site.get("/metrics").text
    assert 'trek_serve_requests_total{version="1",status="200"}' in text
    assert 'trek_serve_workers_ready{version="1"} 1' in text
    last = json.loads(Path(site.headers["x-log"]).read_text().splitlines()[-1])
    assert (last["method"], last["path"], last["status"], last["version"]) == ("POST", "/predict", 400, "1")


def test_many_at_once_are_answered_in_batches_each_with_its_own(site: httpx.Client, expected: np.ndarray) -> None:
    def ask(number: int) -> bool:
        row = number % 4
        found = site.post("/predict", json=_records()[row]).json()["output"]
        return bool(np.allclose(found, expected[row], atol=1e-6))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(64)))


def test_records_are_inferred_in_order_and_classes_named(site: httpx.Client, expected: np.ndarray) -> None:
    rows = _records() * 5
    names = [f"class {index}" for index in range(expected.shape[1])]
    frame = batch_inference(rows, names, str(site.base_url.join("/predict")), 3)
    assert frame["label"].tolist() == [names[index] for index in expected.argmax(1)] * 5
    assert np.allclose(np.stack(frame["output"]), np.concatenate([expected] * 5), atol=1e-6)
    with pytest.raises(InputError, match="refused records 0 to 1"):
        batch_inference([{"input_0": [1]}] * 2, None, str(site.base_url.join("/predict")))


@pytest.mark.parametrize(
    ("row", "labels", "label"),
    [
        ({"prediction": 1, "logits": [9, 0]}, ["a", "b"], "b"),
        ({"prediction": "b", "logits": [9, 0]}, ["a", "b"], "b"),
        ({"output": [0.5, 2.5]}, {0: "a", 1: "b"}, "b"),
        ({"output": 1}, ["a", "b"], "b"),
    ],
)
def test_a_class_is_named_whatever_a_classifier_returns(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], labels: Any, label: str
) -> None:
    monkeypatch.setattr(httpx.Client, "post", lambda self, url, **_: httpx.Response(200, json=[row]))
    assert batch_inference([{"x": 1}], labels)["label"].tolist() == [label]


@pytest.mark.parametrize(("row", "reason"), [({"output": [0, 1, 5]}, "class 2"), ({"x": 1, "y": 2}, "classifier")])
def test_classes_that_have_no_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(httpx.Client, "post", lambda self, url, **_: httpx.Response(200, json=[row]))
    with pytest.raises(InputError, match=reason):
        batch_inference([{"x": 1}], ["a", "b"])


def test_inference_waits_for_a_server_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([503, 507, 429, 200])

    def post(self: httpx.Client, url: str, **_: Any) -> httpx.Response:
        status = next(answers)
        return httpx.Response(status, json=[{"y": 1}], headers={"retry-after": "2"})

    monkeypatch.setattr(httpx.Client, "post", post)
    slept: list[float] = []
    assert len(batch_inference([{"x": 1}], None, "http://127.0.0.1:1", sleep=slept.append)) == 1
    assert slept == [2.0, 2.0, 2.0]


def test_inference_gives_up_on_a_server_that_stays_away() -> None:
    with pytest.raises(OutsideError, match="did not answer within 1 s"):
        batch_inference([{"x": 1}], None, "http://127.0.0.1:1/predict", patience_s=1, sleep=lambda seconds: None)


def _post(url: str, path: str = "/predict", **body: Any) -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, timeout=60, trust_env=False)


def test_a_request_that_kills_its_worker_takes_no_other_with_it() -> None:
    with Server(f"{FUNCTIONS}:double", code=CODE, port=0) as server, ThreadPoolExecutor(9) as pool:
        bad = pool.submit(_post, server.url, x=666)
        good = [pool.submit(_post, server.url, x=number) for number in range(8)]
        assert [one.result().json()["y"] for one in good] == [2 * number for number in range(8)]
        assert (bad.result().status_code, bad.result().headers["retry-after"]) == (503, "1")
        _wait(lambda: httpx.get(f"{server.url}/v2/health/ready", trust_env=False).status_code == 200)
        assert _post(server.url, x=-1).status_code == 500
        assert "trek_serve_worker_deaths_total 3" in httpx.get(f"{server.url}/metrics", trust_env=False).text


def test_reloads_and_killed_workers_fail_no_request() -> None:
    """Two reloads and two kills under load; `benchmarks/serve/chaos.py` does twenty of each."""
    failures: list[str] = []
    stopped = threading.Event()

    def ask(url: str) -> int:
        done = 0
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            while not stopped.is_set():
                found = client.post("/predict", json={"x": 1})
                done += 1
                if found.status_code != 200:
                    failures.append(found.text)
        return done

    with Server(f"{FUNCTIONS}:who", code=CODE, port=0, workers=2) as server, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, server.url) for _ in range(4)]
        before = set(server.worker_pids)
        for _ in range(2):
            killed = server.worker_pids[0]
            os.kill(killed, signal.SIGKILL)
            _wait(lambda k=killed: len(server.worker_pids) == 2 and k not in server.worker_pids)
            server.reload()
        assert not before & set(server.worker_pids)
        stopped.set()
        assert min(one.result() for one in asking) > 0
    assert failures == []


def test_overload_is_told_and_what_was_taken_is_answered() -> None:
    with Server(f"{FUNCTIONS}:slow", code=CODE, port=0, max_queue=1, batch=1) as server, ThreadPoolExecutor(6) as pool:
        found = Counter(one.status_code for one in pool.map(lambda _: _post(server.url, x=1.0), range(6)))
        assert found.keys() == {200, 429}
        assert 2 <= found[200] <= 4


def test_what_waits_is_one_batch_and_a_lone_request_does_not_wait() -> None:
    with Server(f"{FUNCTIONS}:slow", code=CODE, port=0, batch=8) as server, ThreadPoolExecutor(5) as pool:
        first = pool.submit(_post, server.url, x=1.0)
        _wait(lambda: "trek_serve_batch_requests_count 1" in httpx.get(f"{server.url}/metrics", trust_env=False).text)
        rest = [pool.submit(_post, server.url, x=0.0) for _ in range(4)]
        assert first.result().json()["together"] == 1
        assert [one.result().json()["together"] for one in rest] == [4] * 4


def test_a_worker_that_hangs_is_replaced() -> None:
    with Server(f"{FUNCTIONS}:slow", code=CODE, port=0, timeout_s=1) as server:
        assert _post(server.url, x=600).status_code == 504
        _wait(lambda: bool(server.worker_pids))
        assert _post(server.url, x=0).status_code == 200


def test_a_request_that_hangs_takes_no_other_with_it() -> None:
    with Server(f"{FUNCTIONS}:slow", code=CODE, port=0, timeout_s=3) as server, ThreadPoolExecutor(9) as pool:
        first = pool.submit(_post, server.url, x=0.5)
        _wait(lambda: "trek_serve_batch_requests_count 1" in _metrics(server.url))
        together = [pool.submit(_post, server.url, x=0.1) for _ in range(3)]
        hanging = pool.submit(_post, server.url, x=600)
        together += [pool.submit(_post, server.url, x=0.1) for _ in range(3)]
        assert [one.result().status_code for one in (first, *together)] == [200] * 7
        assert hanging.result().status_code == 504


def test_no_request_waits_longer_than_the_timeout_for_a_worker() -> None:
    with (
        Server(f"{FUNCTIONS}:slow", code=CODE, port=0, timeout_s=4, batch=1) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        taken = pool.submit(_post, server.url, x=2.5)
        _wait(lambda: "trek_serve_batch_requests_count 1" in _metrics(server.url))
        next_one = pool.submit(_post, server.url, x=2.5)
        _wait(lambda: 'trek_serve_waiting{version="1"} 1' in _metrics(server.url))
        last = _post(server.url, x=0)
        assert (last.status_code, last.json()["error"]) == (504, "no worker was free within 4 s.")
        assert taken.result().status_code == next_one.result().status_code == 200


def test_what_waits_for_callers_that_have_gone_is_not_done() -> None:
    with Server(f"{FUNCTIONS}:slow", code=CODE, port=0, batch=1) as server, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(_post, server.url, x=1)
        _wait(lambda: "trek_serve_batch_requests_count 1" in _metrics(server.url))
        gone = [_send_and_leave(server.url) for _ in range(5)]
        _wait(lambda: 'trek_serve_requests_total{version="1",status="499"} 5' in _metrics(server.url))
        assert (len(gone), taken.result().status_code) == (5, 200)
        assert _post(server.url, x=0).status_code == 200
        assert "trek_serve_batch_requests_count 2" in _metrics(server.url)


def test_without_a_worker_requests_are_refused_until_one_can_be_started(tmp_path: Path) -> None:
    code = tmp_path / "fragile.py"
    code.write_text("def same(x):\n    return {'y': x}\n")
    with Server("fragile:same", code=tmp_path, port=0) as server, ThreadPoolExecutor(1) as pool:
        assert _post(server.url, x=1).status_code == 200
        code.write_text("raise RuntimeError('half written')\n")
        os.kill(server.worker_pids[0], signal.SIGKILL)
        waiting = pool.submit(_post, server.url, x=1).result()
        assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
        assert "no worker can be started" in waiting.json()["error"]
        assert "half written" in waiting.json()["error"]
        assert httpx.get(f"{server.url}/v2/health/ready", trust_env=False).status_code == 503
        code.write_text("def same(x):\n    return {'y': x}\n")
        _wait(lambda: _post(server.url, x=1).status_code == 200)


def test_workers_end_with_a_front_process_that_is_killed() -> None:
    command = [sys.executable, "-m", "trek", "serve", f"{FUNCTIONS}:slow", "--port", "0", "--code", str(CODE)]
    front = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert front.stdout is not None
        url = next(word for word in front.stdout.readline().split() if word.startswith("http://"))
        [worker] = psutil.Process(front.pid).children()
        _send_and_leave(url, x=600)
        _wait(lambda: "trek_serve_batch_requests_count 1" in _metrics(url))
    finally:
        front.kill()
        front.communicate()
    worker.wait(timeout=60)


def test_connections_without_a_request_do_not_lock_others_out() -> None:
    serve = f"exec {sys.executable} -m trek serve {FUNCTIONS}:double --port 0 --code {CODE}"
    front = subprocess.Popen(["bash", "-c", f"ulimit -n 90; {serve}"], stdout=subprocess.PIPE, text=True)
    opened = list[socket.socket]()
    try:
        assert front.stdout is not None
        url = next(word for word in front.stdout.readline().split() if word.startswith("http://"))
        for _ in range(120):
            opened.append(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))))
            opened[-1].sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nX-")
        assert _post(url, x=1).json() == {"y": 2}
    finally:
        for one in opened:
            one.close()
        front.terminate()
        front.communicate()


def test_a_stream_sends_its_pieces_and_its_error() -> None:
    with Server(f"{FUNCTIONS}:count", code=CODE, port=0, key="secret") as server:
        with httpx.Client(base_url=server.url, headers={"authorization": "Bearer secret"}, trust_env=False) as client:
            lines = client.post("/predict/stream", json={"to": 3}).text.split()
            assert [line for line in lines if line != "data:"] == [
                '{"number":',
                "0}",
                '{"number":',
                "1}",
                '{"number":',
                "2}",
            ]
            failed = client.post("/v2/models/model/generate_stream", json={"to": 20}).text
            assert failed.count('data: {"number"') == 13
            assert "event: error" in failed
            assert "thirteen" in failed
            with client.stream("POST", "/predict/stream", json={"to": 10_000_000}) as endless:
                next(endless.iter_lines())
            assert client.post("/predict", json={"to": 1}).status_code == 400  # it is not stuck in the stream
        assert httpx.get(f"{server.url}/v2/health/ready", trust_env=False).status_code == 200
        for token in ("", "Bearer wrong", "secret"):
            assert _post_with(server.url, token).status_code == 401
        known = {"authorization": "Bearer secret"}
        counted = httpx.get(f"{server.url}/metrics", headers=known, trust_env=False).text
        assert 'trek_serve_requests_total{version="",status="401"} 3' in counted


def test_a_stream_that_is_not_read_waits_and_one_that_is_left_ends() -> None:
    with Server(f"{FUNCTIONS}:endless", code=CODE, port=0, timeout_s=2) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        [worker] = server.worker_pids
        with socket.create_connection(address) as connection:
            connection.sendall(b'POST /predict/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{"start": 1}')
            assert connection.recv(12) == b"HTTP/1.1 200"
            _wait(lambda: _is_at_rest(worker))
            time.sleep(3)  # longer than a worker may take: this one waits, and does not hang
            assert server.worker_pids == [worker]
        _wait(lambda: 'status="499"} 1' in _metrics(server.url))
        with httpx.stream("POST", f"{server.url}/predict/stream", json={"start": 1}, trust_env=False) as again:
            assert next(again.iter_lines()).startswith('data: {"number": 1,')
        assert server.worker_pids == [worker]


def _is_at_rest(pid: int) -> bool:
    process = psutil.Process(pid)
    before = process.cpu_times().user
    time.sleep(0.5)
    return process.cpu_times().user == before


def test_versions_share_the_requests_and_one_can_leave() -> None:
    models = {"1": f"{FUNCTIONS}:double", "2": f"{FUNCTIONS}:who"}
    with Server(models, code=CODE, port=0, weights={"1": 3, "2": 1}) as server:
        found = Counter("y" in _post(server.url, x=1).json() for _ in range(12))
        assert found == {True: 9, False: 3}
        named = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [4]}]}
        answer = _post(server.url, "/v2/models/model/versions/1/infer", **named).json()
        assert (answer["model_version"], answer["outputs"][0]["data"]) == ("1", [8])
        server.set_weights({"1": 1, "2": 0})
        assert all("y" in _post(server.url, x=1).json() for _ in range(4))
        server.unload("2")
        index = httpx.post(f"{server.url}/v2/repository/index", trust_env=False).json()
        assert [one["version"] for one in index] == ["1"]
        with pytest.raises(InputError, match="no such weights"):
            server.load(f"{FUNCTIONS}:broken", version="1")
        assert _post(server.url, x=1).json() == {"y": 2}  # the old one answers on


def test_a_model_that_cannot_be_loaded_is_one_error() -> None:
    with pytest.raises(InputError, match=r"broken' cannot be loaded: .*RuntimeError: no such weights"):
        Server(f"{FUNCTIONS}:broken", code=CODE, port=0).start()


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", trust_env=False).text


def _send_and_leave(url: str, *, x: float = 0) -> None:
    """Send a request, and close the connection without reading."""
    body = json.dumps({"x": x}).encode()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def _post_with(url: str, token: str) -> httpx.Response:
    return httpx.post(f"{url}/predict", headers={"authorization": token}, json={}, trust_env=False)


def _wait(is_true: Callable[[], bool], *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)

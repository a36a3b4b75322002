"""`trek serve`, `trek predict` and `trek archive` as whole commands, and archives in a real TorchServe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from trek.client.embedded import running_address
from trek.errors import InputError
from trek.serve.archiving import archive
from trek.serve.handlers import open_handler
from trek.serve.server import Server
from trek.testing.serving import CODE, source_of, train_points
from trek.testing.shell import Shell
from trek.testing.trials import PointsTrial
from trek.train.checkpointing.checkpoint_folder import CheckpointFolder

LABELS = ["minus", "plus"]
ROW = [0.5, -1.0, 2.0, 0.0, 1.0, -0.25]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint, and its archive."""
    folder = tmp_path_factory.mktemp("packed")
    checkpoint = train_points(folder / "run")
    return checkpoint, archive(checkpoint, folder / "points.mar", labels=LABELS, code=CODE)


def test_a_served_model_answers_what_it_took_when_it_is_told_to_end(tmp_path: Path, shell: Shell) -> None:
    address = "trek.testing.served_functions:slow"
    server = shell.start("serve", address, "--port", "0", "--code", str(CODE), "--access-log", "-", "--name", "slow")
    assert server.stdout is not None
    url = server.stdout.readline().split()[3]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.post, f"{url}/predict", json={"x": 1.0}, timeout=60, trust_env=False)
        while "trek_serve_batch_requests_count 1" not in httpx.get(f"{url}/metrics", trust_env=False).text:
            time.sleep(0.02)
        server.send_signal(signal.SIGTERM)
        assert asked.result().json() == {"y": 1.0, "together": 1}
    out, err = server.communicate(timeout=60)
    assert (server.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["path"] == "/predict"


def test_a_hangup_loads_the_model_again(shell: Shell) -> None:
    server = shell.start("serve", "trek.testing.served_functions:who", "--port", "0", "--code", str(CODE))
    assert server.stdout is not None
    url = server.stdout.readline().split()[3]
    first = _who(url)
    server.send_signal(signal.SIGHUP)
    while _who(url) == first:
        time.sleep(0.05)
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=60)
    assert server.returncode == 0


def test_a_model_that_cannot_be_served_ends_the_command_with_2(shell: Shell) -> None:
    done = shell.run("serve", "trek.testing.served_functions:broken", "--code", str(CODE), "--port", "0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be loaded" in done.stderr
    for wrong in (["nothing"], ["a=x:y", "a=x:y"], ["x:y", "--weight", "1=much"], ["x:y", "--host", "0.0.0.0"]):
        assert shell.run("serve", *wrong).returncode == 2


def test_the_best_checkpoint_of_an_experiment_is_served_with_its_code(shell: Shell) -> None:
    made = shell.create("--follow")
    assert made.returncode == 0, made.stderr
    best = shell.json("checkpoint", "best", "1")
    assert shell.run("model", "create", "line").returncode == 0
    assert shell.run("model", "register", "line", best["uuid"]).returncode == 0
    server = shell.start("serve", "1=experiment:1", "2=line:latest", "--port", "0", "--name", "line", "--master-tokens")
    assert server.stdout is not None
    url = server.stdout.readline().split()[3]
    try:
        assert httpx.get(f"{url}/v2/models/line", trust_env=False).status_code == 401
        address = running_address(shell.home)
        assert address is not None
        own = {"authorization": f"Bearer {address.token}"}
        found = httpx.get(f"{url}/v2/models/line", headers=own, trust_env=False).json()
        assert found["versions"] == ["1", "2"]
        [name] = [one["name"] for one in found["inputs"]]
        row = np.zeros(found["inputs"][0]["shape"][1:]).tolist()
        asked = [httpx.post(f"{url}/predict", json={name: row}, headers=own, trust_env=False) for _ in range(2)]
        assert [one.status_code for one in asked] == [200, 200]
        assert asked[0].json() == asked[1].json()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    assert server.returncode == 0


def test_an_archive_is_served_by_trek_itself(packed: tuple[Path, Path]) -> None:
    checkpoint, mar = packed
    expected = CheckpointFolder(checkpoint).load_model(PointsTrial)(torch.tensor([ROW])).detach().numpy()[0]
    with Server(mar, port=0) as server:
        found = httpx.post(f"{server.url}/predict", json={"input_0": ROW}, trust_env=False).json()
    assert found["prediction"] == LABELS[int(expected.argmax())]
    assert np.allclose(found["logits"], expected, atol=1e-6)


def test_an_archive_holds_no_pickle_and_what_torchserve_wants(packed: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packed[1]) as found:
        names = set(found.namelist())
        assert {"MAR-INF/MANIFEST.json", "index_to_name.json", "sample.json", "model-config.yaml"} <= names
        assert {"checkpoint/model.safetensors", "code/trek/testing/trials.py"} <= names
        assert not any(name.endswith((".pt", ".pth", ".bin", ".pkl")) for name in names)
        assert json.loads(found.read("sample.json")) == {"input_0": [0.0] * 6}
    with pytest.raises(InputError, match="only checkpoints"):
        archive("trek.testing.served_functions:double", packed[1].with_name("other.mar"), code=CODE)


@pytest.mark.parametrize("name", ["../outside", "/absolute"])
def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.mar", "w") as bad:
        bad.writestr(name, "x")
    with pytest.raises(InputError, match="unsafe member"):
        open_handler(source_of(tmp_path / "bad.mar"))
    with zipfile.ZipFile(tmp_path / "foreign.mar", "w") as foreign:
        foreign.writestr("MAR-INF/MANIFEST.json", "{}")
    with pytest.raises(InputError, match="not made by `trek archive`"):
        open_handler(source_of(tmp_path / "foreign.mar"))


@pytest.fixture
def torchserve(packed: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """The address of a real TorchServe with the archive."""
    program = Path(sys.executable).with_name("torchserve")
    if shutil.which("java") is None or find_spec("ts") is None or not program.exists():
        pytest.skip("TorchServe needs java and the package torchserve, which are not installed")
    ports = [_free_port() for _ in range(3)]
    addresses = zip(("inference", "management", "metrics"), ports, strict=True)
    lines = [f"{name}_address=http://127.0.0.1:{port}" for name, port in addresses]
    ports += [_free_port(), _free_port()]
    lines += [f"grpc_inference_port={ports[3]}", f"grpc_management_port={ports[4]}", "default_workers_per_model=1"]
    (tmp_path / "config.properties").write_text("\n".join([*lines, "enable_envvars_config=false", ""]))
    command = [str(program), "--foreground", "--ncs", "--disable-token-auth", "--model-store", str(packed[1].parent)]
    command += ["--models", "points.mar", "--ts-config", str(tmp_path / "config.properties")]
    environ = {**os.environ, "LOG_LOCATION": str(tmp_path), "METRICS_LOCATION": str(tmp_path), "TMPDIR": str(tmp_path)}
    environ["PATH"] = f"{program.parent}:{environ['PATH']}"
    with (tmp_path / "out.txt").open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=out, stderr=out, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_torchserve_gives_the_predictions_and_logits_of_an_archive(packed: tuple[Path, Path], torchserve: str) -> None:
    expected = CheckpointFolder(packed[0]).load_model(PointsTrial)(torch.tensor([ROW])).detach().numpy()[0]
    found = _ask(torchserve, {"input_0": ROW})
    assert found["prediction"] == LABELS[int(expected.argmax())]
    assert np.allclose(found["logits"], expected, atol=1e-6)
    wrong = httpx.post(f"{torchserve}/predictions/points", json={"input_0": [1]}, trust_env=False, timeout=60)
    assert wrong.status_code == 400
    assert "shape" in wrong.json()["error"]


def _who(url: str) -> int:
    found = httpx.post(f"{url}/predict", json={"x": 1}, timeout=60, trust_env=False)
    assert found.status_code == 200
    return int(found.json()["pid"])


def _ask(url: str, record: dict[str, object]) -> dict[str, object]:
    deadline = time.monotonic() + 200
    while True:
        assert time.monotonic() < deadline, "TorchServe did not answer in time"
        try:
            found = httpx.post(f"{url}/predictions/points", json=record, trust_env=False, timeout=60)
        except httpx.TransportError:
            time.sleep(0.2)
            continue
        if found.status_code == 200:
            return dict(found.json())
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])

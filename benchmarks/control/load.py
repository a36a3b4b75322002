"""How long reads take with many clients while trials report, compared with MLflow's server under the same load.

    python benchmarks/control/load.py --clients 200 --trials 8 --seconds 20 [--peers PYTHON]

Every client reads something each second (a list of experiments, one of them, a series of metrics, who it is), as open
pages do; every trial reports 100 rows twice a second. Clients, trials and the server are separate processes on one
machine, and both servers store in SQLite. Target: a 99th percentile below 1 s. MLflow runs if it is installed in this
Python, or in the one given by --peers; otherwise it is reported as skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from trek.client.embedded import ensure_running
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.experiments.config import ExperimentConfig

EXPERIMENTS, POINTS = 50, 2000
ROWS, FILLED, REPORT_S, READ_S = 100, 1000, 0.5, 1.0
START_S = 10.0
"""Until all processes have started."""
READERS = 2
"""Processes that the clients are shared between."""


@dataclass(frozen=True)
class Call:
    """One request."""

    method: str
    url: str
    body: Any = None


@dataclass(frozen=True)
class Server:
    """What to ask of a running server."""

    name: str
    reads: list[Call]
    reports: list[str]
    """The address that each trial reports to."""
    headers: dict[str, str] = field(default_factory=dict)
    is_trek: bool = False


def main() -> None:
    """Load one server after the other and print the percentiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    settings = parser.parse_args()
    load = {"clients": settings.clients, "trials": settings.trials, "seconds": settings.seconds}
    with tempfile.TemporaryDirectory() as folder, trek_server(Path(folder) / "home") as server:
        ours = measure(server, **load)
    version = _mlflow_version(settings.peers)
    if version is None:
        print("mlflow: skipped: not installed")
        return
    with tempfile.TemporaryDirectory() as folder, mlflow_server(Path(folder), settings.peers, version) as server:
        theirs = measure(server, **load)
    print(f"trek / mlflow: p50 {ours[0] / theirs[0]:.2f}, p99 {ours[1] / theirs[1]:.2f}")


def measure(server: Server, *, clients: int, trials: int, seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of the seconds of a read."""
    context = multiprocessing.get_context("spawn")
    start = time.time() + START_S
    until = start + seconds
    with context.Pool(READERS + 1) as pool:
        writing = pool.apply_async(write, (server, trials, start, until))
        shares = [len(range(one, clients, READERS)) for one in range(READERS)]
        reading = [pool.apply_async(read, (server, share, start, until, one)) for one, share in enumerate(shares)]
        times = sorted(itertools.chain.from_iterable(result.get() for result in reading))
        rows = writing.get()
    p50, p99 = statistics.median(times), times[int(0.99 * len(times))]
    print(
        f"{server.name}: {len(times) / seconds:.0f} reads/s of {clients} clients with {trials} trials reporting "
        f"{rows / seconds:.0f} rows/s: p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms, most {times[-1] * 1e3:.0f} ms"
    )
    return p50, p99


def read(server: Server, clients: int, start: float, until: float, seed: int) -> list[float]:
    """The seconds of every read of some clients."""
    time.sleep(max(start - time.time(), 0))
    return asyncio.run(_read_all(server, clients, until, random.Random(seed)))


async def _read_all(server: Server, clients: int, until: float, chance: random.Random) -> list[float]:
    taken: list[float] = []

    async def one() -> None:
        await asyncio.sleep(chance.random() * READ_S)
        async with Connection(server) as connection:
            while (began := time.time()) < until:
                await connection.ask(chance.choice(server.reads))
                taken.append(time.time() - began)
                await asyncio.sleep(max(READ_S - taken[-1], 0))

    await asyncio.gather(*(one() for _ in range(clients)))
    return taken


class Connection:
    """One client's connection that is kept open. Full HTTP clients cost more CPU here than the servers they measure."""

    def __init__(self, server: Server) -> None:
        address = urlsplit(server.reads[0].url)
        self._host, self._port = address.hostname or "", address.port
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in server.headers.items())

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, call: Call) -> None:
        """Send a request and read the whole answer."""
        address = urlsplit(call.url)
        body = b"" if call.body is None else json.dumps(call.body).encode()
        head = f"{call.method} {address.path}?{address.query} HTTP/1.1\r\nhost: {self._host}\r\n{self._headers}"
        kind = "content-type: application/json\r\n" if body else ""
        self._writer.write(f"{head}{kind}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.startswith("http/1.1 200"), f"{call.url}: {answer}"
        length = int(answer.partition("content-length:")[2].split("\r\n")[0])
        await self._reader.readexactly(length)


def write(server: Server, trials: int, start: float, until: float) -> int:
    """Report for every trial; returns how many rows were stored."""
    time.sleep(max(start - time.time(), 0))
    with httpx.Client(headers=server.headers, timeout=60, trust_env=False) as client:
        stored, first = 0, POINTS
        while (began := time.time()) < until:
            for url in server.reports[:trials]:
                client.post(url, json=_report(server, url, first)).raise_for_status()
                stored += ROWS
            first += ROWS
            time.sleep(max(REPORT_S - (time.time() - began), 0))
    return stored


def _report(server: Server, url: str, first: int, rows: int = ROWS) -> Any:
    if server.is_trek:
        points = (
            {"group": "training", "batches": at, "epoch": 0.0, "metrics": {"loss": 1 / at}, "time_s": 0.0}
            for at in range(first, first + rows)
        )
        return {"run": 1, "metrics": list(points)}
    values = [{"key": "loss", "value": 1 / at, "timestamp": 0, "step": at} for at in range(first, first + rows)]
    return {"run_id": url.partition("#")[2], "metrics": values}


@contextmanager
def trek_server(home: Path) -> Iterator[Server]:
    """A control plane with experiments that run, one trial each."""
    os.environ["TREK_HOME"] = str(home)
    address = ensure_running(home)
    try:
        _add_experiments(home)
        api = f"{address.url}/api/v1"
        headers = {"authorization": f"Bearer {address.token}"}
        reports = [f"{api}/trials/{number}/reports" for number in range(1, EXPERIMENTS + 1)]
        server = Server("trek", _trek_reads(api), reports, headers, is_trek=True)
        _fill(server)
        yield server
    finally:
        subprocess.run([sys.executable, "-m", "trek", "cluster", "stop", "--kill"], check=False)


def _trek_reads(api: str) -> list[Call]:
    numbers = range(1, EXPERIMENTS + 1)
    return [
        *(Call("GET", f"{api}/experiments?limit=50") for _ in numbers),
        *(Call("GET", f"{api}/experiments/{number}") for number in numbers),
        *(Call("GET", f"{api}/trials/{number}/metrics?max_points=500") for number in numbers),
        *(Call("GET", f"{api}/whoami") for _ in numbers),
    ]


def _add_experiments(home: Path) -> None:
    raw = {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}
    config = ExperimentConfig.parse(raw).normal_form()
    store = Store.at(home)
    with store.writing() as session:
        for number in range(1, EXPERIMENTS + 1):
            session.add(ExperimentRow(id=number, name="e", config=config, archive="", state="running", created_s=0.0))
            session.flush()
            trial = TrialRow(
                experiment_id=number, key=0, state="running", hparams={}, seed=0, length=1, created_s=0.0, run=1
            )
            session.add(trial)
    store.close()


@contextmanager
def mlflow_server(folder: Path, python: str, version: str) -> Iterator[Server]:
    """MLflow's tracking server with one run in each experiment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [python, "-m", "mlflow", "server", "--backend-store-uri", store, "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    api = f"http://127.0.0.1:{port}/api/2.0/mlflow"
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        runs = [_mlflow_run(api, number) for number in range(EXPERIMENTS)]
        server = Server(
            f"mlflow {version}", _mlflow_reads(api, runs), [f"{api}/runs/log-batch#{run}" for _, run in runs]
        )
        _fill(server)
        yield server
    finally:
        process.terminate()
        process.wait()


def _mlflow_run(api: str, number: int) -> tuple[str, str]:
    made = httpx.post(f"{api}/experiments/create", json={"name": f"e{number}"}, trust_env=False).json()
    run = httpx.post(f"{api}/runs/create", json={"experiment_id": made["experiment_id"]}, trust_env=False).json()
    return made["experiment_id"], run["run"]["info"]["run_id"]


def _mlflow_reads(api: str, runs: list[tuple[str, str]]) -> list[Call]:
    history = "metric_key=loss&max_results=500"
    return [
        *(Call("POST", f"{api}/experiments/search", {"max_results": 50}) for _ in runs),
        *(Call("POST", f"{api}/runs/search", {"experiment_ids": [one]}) for one, _ in runs),
        *(Call("GET", f"{api}/metrics/get-history?run_id={run}&{history}") for _, run in runs),
        *(Call("GET", f"{api}/experiments/get?experiment_id={one}") for one, _ in runs),
    ]


def _fill(server: Server) -> None:
    """Give every trial a series to read."""
    with httpx.Client(headers=server.headers, timeout=60, trust_env=False) as client:
        for url, first in itertools.product(server.reports, range(1, POINTS, FILLED)):
            client.post(url, json=_report(server, url, first, FILLED)).raise_for_status()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise SystemExit(f"no answer at {url}")


def _mlflow_version(python: str) -> str | None:
    command = [python, "-c", "import json, mlflow; print(json.dumps(mlflow.__version__))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(done.stdout)) if done.returncode == 0 else None


if __name__ == "__main__":
    main()

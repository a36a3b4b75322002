"""The web page in a real browser: how soon it can be used, and what it takes of memory and of the network.

Measured against a master with a large experiment (200 trials of 100,000 points by default) and 10,000 experiments in
the list. With `--mlflow`, MLflow's page (`mlflow server`) shows as many runs in the same run of this script.

    python benchmarks/web/page.py [--trials 200] [--points 100000] [--experiments 10000] [--mlflow]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.control.metrics.metric_blocks import summarise
from trek.control.store import Store
from trek.experiments.config import ExperimentConfig
from trek.testing.browser import open_browser, why_no_browser

CONFIG = {
    "name": "large",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 200, "max_length": 100_000},
}
MLFLOW_POINTS = 1000
"""Points per run in MLflow, whose store takes a second for a few thousand."""


def main() -> int:
    """Fill a store, open the pages, print the figures."""
    arguments = _arguments()
    if reason := why_no_browser():
        print(f"not measured: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        print(f"filling a store: {arguments.trials} trials × {arguments.points} points", flush=True)
        _fill(home, trials=arguments.trials, points=arguments.points, experiments=arguments.experiments)
        with _master(home) as client, open_browser() as browser:
            for row in _measure(client, browser, trials=arguments.trials):
                print(json.dumps(row), flush=True)
        if arguments.mlflow:
            print(json.dumps(_mlflow(Path(folder), runs=arguments.trials)), flush=True)
    return 0


def _measure(client: Client, browser: Any, *, trials: int) -> Iterator[dict[str, Any]]:
    context = browser.new_context(viewport={"width": 1360, "height": 850})
    page = context.new_page()
    page.goto(client.page_link("/cluster"))
    page.wait_for_selector("h1:has-text('Cluster')")
    for name, place, ready in (
        ("experiments, first visit", "/experiments", ".table-body [role=row]"),
        ("experiments, again", "/experiments", ".table-body [role=row]"),
        (f"experiment of {trials} trials, first", "/experiments/1", "figure.chart[data-points]"),
        (f"experiment of {trials} trials, again", "/experiments/1", "figure.chart[data-points]"),
    ):
        yield {"page": name, **_open(context, client, place, ready)}
    context.close()


def _open(context: Any, client: Client, place: str, ready: str) -> dict[str, Any]:
    page = context.new_page()
    session = context.new_cdp_session(page)
    began = time.perf_counter()
    page.goto(f"{client.url}/#{place}")
    page.wait_for_selector(ready, timeout=120_000)
    seconds = time.perf_counter() - began
    page.wait_for_timeout(1500)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")["usedSize"]
    sent = page.evaluate(
        "performance.getEntriesByType('resource').filter(one => one.name.endsWith('.js'))"
        ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
    )
    frames = _scroll(page) if "table" in ready else None
    page.close()
    return {
        "interactive_s": round(seconds, 2),
        "heap_mb": round(heap / 2**20, 1),
        "script_kb": round(sent / 1024, 1),
        **({"slowest_frame_ms": frames} if frames is not None else {}),
    }


def _scroll(page: Any) -> float:
    """The slowest frame while the table is scrolled from its beginning to its end."""
    script = """() => new Promise(done => {
        const box = document.querySelector('.table-scroll');
        let last = performance.now(), slowest = 0, step = 0;
        const frame = now => {
            slowest = Math.max(slowest, now - last);
            last = now;
            box.scrollTop = box.scrollHeight * ++step / 60;
            step < 60 ? requestAnimationFrame(frame) : done(Math.round(slowest));
        };
        requestAnimationFrame(frame);
    })"""
    return float(page.evaluate(script))


def _fill(home: Path, *, trials: int, points: int, experiments: int) -> None:
    """Rows as trials would have left them; through the API it would take hours."""
    normal = json.dumps(ExperimentConfig.parse(CONFIG).normal_form())
    with closing(Store.at(home)):
        pass
    with closing(sqlite3.connect(home / "control.db")) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        now = time.time()
        columns = "name, description, owner, state, wanted, config, archive, labels, is_archived, snapshot, "
        columns += (
            "search_finished, expected_length, progress, error, failure, warnings, provenance, created_s, ended_s, "
        )
        columns += "best_metric, best_trial"
        row = ("", "root", "completed", "run", normal, "0" * 64, '["demo"]', 0, "{}", 1, 0, 1.0, "", "", "[]", "{}")
        database.executemany(
            f"INSERT INTO experiments ({columns}) VALUES ({', '.join('?' * 21)})",
            ((f"experiment {at}", *row, now - at, now, 0.1, 1) for at in range(experiments)),
        )
        database.executemany(
            "INSERT INTO trials (experiment_id, key, state, wanted, hparams, seed, length, run, restarts, progress,"
            " batches, start_batches, best_metric, latest_metrics, slots, waiting, retries_cancelled, error, traceback,"
            " failure, created_s)"
            " VALUES (1, ?, 'completed', 'run', ?, 0, ?, 1, 0, 1, ?, 0, 0.1, '{}', '[]', '', '', '', '', '', ?)",
            ((key, json.dumps({"lr": 10 ** -(key % 40 / 10)}), points, points, now) for key in range(trials)),
        )
        database.executemany(
            'INSERT INTO metrics (trial_id, "group", batches, epoch, metrics, time_s, duration_s)'
            " VALUES (?, ?, ?, ?, ?, ?, 0)",
            _points(trials, points),
        )
    with closing(Store.at(home)) as store:
        for trial in range(1, trials + 1):
            with store.writing() as session:
                while summarise(session, trial, "validation"):
                    pass


def _points(trials: int, points: int) -> Iterator[tuple[Any, ...]]:
    generator = random.Random(0)
    for trial in range(1, trials + 1):
        rate = 1 + trial % 17
        for at in range(points):
            value = math.exp(-rate * at / points) + 0.05 * generator.random()
            yield trial, "validation", at, at / 1000, f'{{"loss":{value:.5f}}}', at * 0.1


@contextmanager
def _master(home: Path) -> Iterator[Client]:
    import os

    command = [sys.executable, "-m", "trek", "up", "--port", "0"]
    process = subprocess.Popen(command, env={**os.environ, "TREK_HOME": str(home)}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        address = running_address(home)
        assert address is not None
        with Client(address) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _mlflow(folder: Path, *, runs: int) -> dict[str, Any]:
    """MLflow's page of as many runs, with fewer points: its own store is what limits them."""
    import mlflow
    from mlflow.entities import Metric

    store = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.set_tracking_uri(store)
    client, experiment = mlflow.MlflowClient(), mlflow.create_experiment("large")
    now = int(time.time() * 1000)
    for run in range(runs):
        made = client.create_run(experiment, run_name=f"run {run}")
        metrics = [Metric("loss", math.exp(-at / MLFLOW_POINTS), now + at, at) for at in range(MLFLOW_POINTS)]
        client.log_batch(made.info.run_id, metrics=metrics)
        client.set_terminated(made.info.run_id)
    command = [sys.executable, "-m", "mlflow", "server", "--port", "8977", "--backend-store-uri", store]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _await("http://127.0.0.1:8977/health")
            with open_browser() as browser:
                page = browser.new_context(viewport={"width": 1360, "height": 850}).new_page()
                session = page.context.new_cdp_session(page)
                began = time.perf_counter()
                page.goto(f"http://127.0.0.1:8977/#/experiments/{experiment}?compareRunsMode=CHART")
                page.wait_for_selector("text=run 1", timeout=120_000)
                seconds = time.perf_counter() - began
                page.wait_for_timeout(1500)
                session.send("HeapProfiler.collectGarbage")
                heap = session.send("Runtime.getHeapUsage")["usedSize"]
                sent = page.evaluate(
                    "performance.getEntriesByType('resource').filter(one => one.name.endsWith('.js'))"
                    ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
                )
        finally:
            process.send_signal(signal.SIGTERM)
    return {
        "page": f"MLflow {mlflow.__version__}, {runs} runs × {MLFLOW_POINTS} points",
        "interactive_s": round(seconds, 2),
        "heap_mb": round(heap / 2**20, 1),
        "script_kb": round(sent / 1024, 1),
    }


def _await(url: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"no answer from {url}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--mlflow", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

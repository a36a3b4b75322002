"""The web page in a real browser: how soon it can be used, and what it takes of memory and of the network.

Measured against a master with a large experiment (200 trials of 100,000 points by default) and 10,000 experiments in
the list. MLflow's page shows as many runs with as many points in the same run of this script, if MLflow is installed in
this Python, or in the one given by --peers. A page counts as interactive when its content is there and drawn, by the
browser's own clock from the beginning of the navigation: asking the browser from outside would add its own time.

    python benchmarks/web/page.py [--trials 200] [--points 100000] [--experiments 10000] [--peers PYTHON] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from trek.client.client import Client
from trek.client.embedded import running_address
from trek.control.metrics.metric_blocks import summarise
from trek.control.store import Store
from trek.experiments.config import ExperimentConfig
from trek.testing.browser import open_browser, why_no_browser
from trek.testing.shell import wait_until

CONFIG = {
    "name": "large",
    "entrypoint": "model_def:Trial",
    "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 200, "max_length": 100_000},
}
PEER = Path(__file__).parent / "peers" / "mlflow_store.py"
ROWS, CHART = ".table-body [role=row]", "figure.chart[data-points]"
MLFLOW_CHART = ".js-plotly-plot .scatterlayer .trace, .js-plotly-plot canvas"

DRAWN = """{
    const watch = new MutationObserver(() => {
        if (!document.querySelector(READY)) return;
        watch.disconnect();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAfterMs = performance.now(); }));
    });
    watch.observe(document, { childList: true, subtree: true, attributes: true });
}"""


def main() -> int:
    """Fill the stores, open the pages, print the figures."""
    arguments = _arguments()
    if reason := why_no_browser():
        print(f"not measured: {reason}")
        return 0
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        size = {"trials": arguments.trials, "points": arguments.points}
        if not (folder / "home").is_dir():
            print(f"filling a store: {arguments.trials} trials × {arguments.points} points", flush=True)
            _fill(folder / "home", **size, experiments=arguments.experiments)
        with _master(folder / "home") as client:
            _measure(client, trials=arguments.trials)
        _measure_mlflow(arguments.peers, folder, **size)
    return 0


def _measure(client: Client, *, trials: int) -> None:
    """Each page twice: the first time after a cold start of the master and of the browser, then again."""
    with open_browser() as browser:
        context = browser.new_context(viewport={"width": 1360, "height": 850})
        link = client.page_link("/experiments")
        for name, address, ready in (
            ("experiments, first visit", link, ROWS),
            ("experiments, again", f"{client.url}/#/experiments", ROWS),
            (f"experiment of {trials} trials, first visit", f"{client.url}/#/experiments/1", CHART),
            (f"experiment of {trials} trials, again", f"{client.url}/#/experiments/1", CHART),
        ):
            _print(name, _visit(context, address, ready=ready, is_scrolled=ready == ROWS))


def _measure_mlflow(python: str, folder: Path, *, trials: int, points: int) -> None:
    made = folder / "mlflow.json"
    if not made.is_file():
        command = [python, str(PEER), str(trials), str(points), str(folder / "mlflow.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not done.stdout:
            print(f"mlflow: skipped: {(done.stderr.strip().splitlines() or ['not installed'])[-1]}")
            return
        made.write_text(done.stdout.splitlines()[-1])
    about = json.loads(made.read_text())
    with _mlflow_server(python, folder / "mlflow.db") as url, open_browser() as browser:
        context = browser.new_context(viewport={"width": 1360, "height": 850})
        charts = f"{url}/#/experiments/{about['experiment']}/runs?compareRunsMode=CHART"
        for visit in ("first visit", "again"):
            _print(f"MLflow {about['version']}, {trials} runs, {visit}", _visit(context, charts, ready=MLFLOW_CHART))


def _visit(context: Any, address: str, *, ready: str, is_scrolled: bool = False) -> dict[str, Any]:
    """Open an address in a new tab, and close it after the measurements."""
    page = context.new_page()
    page.add_init_script(DRAWN.replace("READY", json.dumps(ready)))
    page.goto(address)
    seconds = page.wait_for_function("() => window.drawnAfterMs", timeout=300_000).json_value() / 1000
    page.wait_for_timeout(1500)
    session = context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    found = {
        "interactive_s": round(seconds, 2),
        "heap_mb": round(session.send("Runtime.getHeapUsage")["usedSize"] / 2**20, 1),
        "renderers_mb": round(_renderers_bytes(context.browser) / 2**20, 1),
        "script_kb": round(_script_bytes(page) / 1024, 1),
        **({"slowest_frame_ms": _scroll(page)} if is_scrolled else {}),
    }
    page.close()
    return found


def _renderers_bytes(browser: Any) -> int:
    """The memory that the processes of the page have for themselves, code and pictures included."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(psutil.Process(one["id"]).memory_full_info().uss for one in found if one["type"] == "renderer")


def _script_bytes(page: Any) -> int:
    """Of the scripts that were loaded, as they were sent."""
    return int(
        page.evaluate(
            "() => performance.getEntriesByType('resource').filter(one => one.name.split('?')[0].endsWith('.js'))"
            ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
        )
    )


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


def _print(name: str, figures: dict[str, Any]) -> None:
    print(json.dumps({"page": name, **figures}, ensure_ascii=False), flush=True)


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
    command = [sys.executable, "-m", "trek", "up", "--port", "0"]
    process = subprocess.Popen(command, env={**os.environ, "TREK_HOME": str(home)}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: running_address(home) is not None)
        address = running_address(home)
        assert address is not None
        with Client(address) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


@contextmanager
def _mlflow_server(python: str, database: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "mlflow", "server", "--port", str(port), "--backend-store-uri", f"sqlite:///{database}"]
    process = subprocess.Popen(command, cwd=database.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _await(url: str) -> None:
    deadline = time.monotonic() + 300
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
    parser.add_argument("--peers", default=sys.executable, help="A Python that has MLflow.")
    parser.add_argument("--folder", type=Path, help="Where the stores are kept; filled if empty.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

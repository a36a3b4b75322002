"""How many metric rows per second a master can store: trials post batches over HTTP, stored in SQLite.

    python benchmarks/control/ingestion.py --trials 8 --rows 50000 --batch 1000

The master is the daemon that commands start; the master and every trial run in separate processes. A batch is what the
reporting of a trial collects while the previous batch is being sent. Target: 20,000 rows/s from 8 trials. The master's
CPU time per row is printed too, which is more meaningful on a shared machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psutil
from sqlalchemy import func, select

from trek.client.client import Client
from trek.client.embedded import ensure_running, read_address
from trek.client.models import MetricPoint, Report
from trek.control.store import Store
from trek.control.tables import ExperimentRow, MetricTable, TrialRow
from trek.experiments.config import ExperimentConfig

TARGET = 20_000
CONFIG = {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}


def main() -> None:
    """Start a master, let trials post, count the rows in the database, and print rows per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of each trial")
    parser.add_argument("--batch", type=int, default=1000)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["TREK_HOME"] = str(home)
        ensure_running(home)
        try:
            measure(home, trials=settings.trials, rows=settings.rows, batch=settings.batch)
        finally:
            subprocess.run([sys.executable, "-m", "trek", "cluster", "stop", "--kill"], check=False)


def measure(home: Path, *, trials: int, rows: int, batch: int) -> None:
    """Post from one process per trial."""
    add_trials(home, trials)
    master = psutil.Process(json.loads((home / "control.json").read_text())["pid"])
    context = multiprocessing.get_context("spawn")
    start_together = context.Barrier(trials + 1)
    posters = [
        context.Process(target=post, args=(home, trial, rows, batch, start_together)) for trial in range(1, trials + 1)
    ]
    for poster in posters:
        poster.start()
    start_together.wait()
    cpu_s, start = _cpu_s(master), time.perf_counter()
    for poster in posters:
        poster.join()
    seconds, cpu_s = time.perf_counter() - start, _cpu_s(master) - cpu_s
    kept = count(home)
    assert kept == trials * rows, f"expected {trials * rows} rows, got {kept}"
    print(f"{kept} rows from {trials} trials in {seconds:.1f} s: {kept / seconds:,.0f} rows/s")
    print(f"ratio to the target of {TARGET:,} rows/s: {kept / seconds / TARGET:.2f}")
    print(f"the master's CPU: {cpu_s / kept * 1e6:.1f} µs per row, which limits it to {kept / cpu_s:,.0f} rows/s")


def add_trials(home: Path, trials: int) -> None:
    """Add trials in the state running; the supervisor watches only trials that it started."""
    store = Store.at(home)
    config = ExperimentConfig.parse(CONFIG).normal_form()
    with store.writing() as session:
        session.add(ExperimentRow(id=1, name="many", config=config, archive="", state="running", created_s=0.0))
        session.flush()
        for key in range(trials):
            trial = TrialRow(experiment_id=1, key=key, state="running", hparams={}, seed=0, length=1, created_s=0.0)
            trial.run = 1
            session.add(trial)
    store.close()


def post(home: Path, trial: int, rows: int, batch: int, start_together: Barrier) -> None:
    """What one trial's reporting thread does."""
    address = read_address(home / "control.json")
    assert address is not None
    reports = [
        Report(run=1, metrics=[_point(at) for at in range(first, min(first + batch, rows))])
        for first in range(0, rows, batch)
    ]
    with Client(address) as client:
        start_together.wait()
        for report in reports:
            assert client.report(trial, report).stop == ""


def _point(at: int) -> MetricPoint:
    values = {"loss": 1 / (1 + at), "accuracy": at / (1 + at)}
    return MetricPoint(
        group="training", batches=at + 1, epoch=at / 100, metrics=values, time_s=float(at), duration_s=0.01
    )


def count(home: Path) -> int:
    """Rows in the database."""
    store = Store.at(home)
    with store.reading() as session:
        found = session.scalar(select(func.count()).select_from(MetricTable)) or 0
    store.close()
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()

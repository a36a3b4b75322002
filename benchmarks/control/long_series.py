"""How long it takes to read a very long metric series over HTTP, downsampled by the master with extremes kept.

    python benchmarks/control/long_series.py --points 1000000

Target: less than 100 ms. The rows are first written to the database, in batches like the reports of a trial; then they
are read from the daemon that commands start.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from sqlalchemy.orm import Session

from trek.client.embedded import ensure_running
from trek.client.models import MetricPoint, Report
from trek.control.store import Store
from trek.control.tables import ExperimentRow, TrialRow
from trek.control.trials.ingest import take_report
from trek.experiments.config import ExperimentConfig

BATCH = 2000
TARGET_S = 0.1
CONFIG = {"entrypoint": "a:B", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}


def main() -> None:
    """Write a series, then read it at several resolutions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        os.environ["TREK_HOME"] = str(home)
        store = Store.at(home)
        seconds = write(store, settings.points)
        store.close()
        print(f"written: {settings.points} rows in {seconds:.1f} s, {settings.points / seconds:,.0f} rows/s")
        try:
            read(home, repeat=settings.repeat)
        finally:
            subprocess.run([sys.executable, "-m", "trek", "cluster", "stop", "--kill"], check=False)


def read(home: Path, *, repeat: int) -> None:
    """Time requests for the series, up to the last byte of the response."""
    address = ensure_running(home)
    url = f"{address.url}/api/v1/trials/1/metrics"
    with httpx.Client(headers={"authorization": f"Bearer {address.token}"}, trust_env=False, timeout=60) as client:
        for max_points in (500, 2000, 5000):
            times, num_points = [], 0
            for _ in range(repeat):
                start = time.perf_counter()
                answer = client.get(url, params={"max_points": max_points})
                times.append(time.perf_counter() - start)
                num_points = len(answer.raise_for_status().json())
            middle = sorted(times)[repeat // 2]
            spread = f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}"
            print(
                f"max_points={max_points}: {num_points} points, {middle * 1e3:.0f} ms ({spread}), "
                f"{middle / TARGET_S:.2f} of the target of {TARGET_S * 1e3:.0f} ms"
            )


def write(store: Store, points: int) -> float:
    """Report a noisy curve as a trial does; returns the seconds."""
    with store.writing() as session:
        _trial(session)
    rng = random.Random(0)
    start = time.perf_counter()
    for first in range(0, points, BATCH):
        metrics = [
            MetricPoint(group="training", batches=at, metrics={"loss": 1 / (1 + at) + rng.random()}, time_s=at)
            for at in range(first, min(first + BATCH, points))
        ]
        with store.writing() as session:
            take_report(session, session.get_one(TrialRow, 1), Report(run=1, metrics=metrics), now_s=time.time())
    with store.writing() as session:
        session.get_one(TrialRow, 1).state = session.get_one(ExperimentRow, 1).state = "completed"
    return time.perf_counter() - start


def _trial(session: Session) -> None:
    config = ExperimentConfig.parse(CONFIG).normal_form()
    session.add(ExperimentRow(id=1, name="long", config=config, archive="", state="running", created_s=0.0))
    session.flush()
    session.add(
        TrialRow(id=1, experiment_id=1, key=0, state="running", run=1, hparams={}, seed=0, length=1, created_s=0.0)
    )


if __name__ == "__main__":
    main()

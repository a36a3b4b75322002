"""How long a look at a very long series takes, and what keeping it ready costs when rows come in.

python benchmarks/control/long_series.py --points 1000000
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from sqlalchemy.orm import Session

from trek.client.models import MetricPoint, Report
from trek.control.ingest import take_report
from trek.control.layout import Layout
from trek.control.services import Services
from trek.control.store import Store
from trek.control.supervisor import Supervisor
from trek.control.tables import ExperimentRow, TrialRow
from trek.engines.local import LocalEngine

BATCH = 2000


def main() -> None:
    """Write a series, then ask for it at several resolutions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.at(Path(folder))
        seconds = write(store, settings.points)
        print(f"written: {settings.points} rows in {seconds:.1f} s, {settings.points / seconds:,.0f} rows/s")
        supervisor = Supervisor(
            store, layout=Layout(Path(folder)), engine=LocalEngine(), slots=1, environment=lambda trial, run: {}
        )
        services = Services(store, layout=Layout(Path(folder)), supervisor=supervisor)
        for max_points in (500, 1000, 2000, 5000):
            times, shown = [], 0
            for _ in range(settings.repeat):
                start = time.perf_counter()
                shown = len(services.metrics(1, max_points=max_points))
                times.append(time.perf_counter() - start)
            print(f"max_points={max_points}: {shown} points, {min(times) * 1e3:.0f} to {max(times) * 1e3:.0f} ms")
        store.close()


def write(store: Store, points: int) -> float:
    """Report a noisy curve with a few spikes, as a trial does; returns the seconds it took."""
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
            take_report(session, session.get_one(TrialRow, 1), Report(run=1, metrics=metrics))
    return time.perf_counter() - start


def _trial(session: Session) -> None:
    config = {"searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}
    session.add(ExperimentRow(id=1, name="long", config=config, archive="", state="running", created_s=0.0))
    session.flush()
    session.add(
        TrialRow(id=1, experiment_id=1, key=0, state="running", run=1, hparams={}, seed=0, length=1, created_s=0.0)
    )


if __name__ == "__main__":
    main()
